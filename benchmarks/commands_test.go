package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCallsAreCountedByCommand(t *testing.T) {
	const info = "# Commandstats\r\n" +
		"cmdstat_get:calls=21,usec=175,usec_per_call=8.33,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_client|setinfo:calls=4,usec=9,usec_per_call=2.25,rejected_calls=0,failed_calls=0\r\n"
	got, err := parseCalls(info)
	if diff := cmp.Diff(map[string]int{"get": 21, "client|setinfo": 4}, got); diff != "" || err != nil {
		t.Errorf("calls (-want +got), error %v:\n%s", err, diff)
	}
	if n, err := parseCalls("cmdstat_get:calls=x,usec=1\r\n"); err == nil {
		t.Errorf("counted %v in a malformed line, want an error", n)
	}
}
