package faults

var partitions []Fault
