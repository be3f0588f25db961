package main

import (
	"encoding/json"
	"testing"
)

func TestTheValuesHaveTheSizeThatTheReportNames(t *testing.T) {
	p, err := newProduct()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != valueSize {
		t.Errorf("the product is encoded in %d bytes, want %d", len(data), valueSize)
	}
	if b := newBytes(); len(b) != valueSize || b[0] == 0 {
		t.Errorf("%d raw bytes that begin with %#x, want %d that do not begin with 0", len(b), b[0], valueSize)
	}
}

func TestCommandsAreCountedExceptForINFO(t *testing.T) {
	const info = "# Commandstats\r\n" +
		"cmdstat_get:calls=21,usec=175,usec_per_call=8.33,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_info:calls=2,usec=90,usec_per_call=45.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_client|setinfo:calls=4,usec=9,usec_per_call=2.25,rejected_calls=0,failed_calls=0\r\n"
	if n, err := countCalls(info); n != 25 || err != nil {
		t.Errorf("counted %d, %v; want 25", n, err)
	}
	if n, err := countCalls("cmdstat_get:calls=x,usec=1\r\n"); err == nil {
		t.Errorf("counted %d in a malformed line, want an error", n)
	}
}
