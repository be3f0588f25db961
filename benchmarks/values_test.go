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
	if b := newBytes(valueSize); len(b) != valueSize || b[0] == 0 {
		t.Errorf("%d raw bytes that begin with %#x, want %d that do not begin with 0", len(b), b[0], valueSize)
	}
}
