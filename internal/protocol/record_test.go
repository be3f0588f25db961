package protocol

import (
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
)

// golden are the examples of docs/protocol.md.
var golden = []struct {
	name, stored string // stored is in hexadecimal, as it is printed there
	payload      string
	notFound     bool
	wrapped      bool // it is what this version writes
}{
	{name: `{"a":1}`, stored: "7b 22 61 22 3a 31 7d", payload: `{"a":1}`, wrapped: true},
	{name: "the empty string", stored: "", payload: "", wrapped: true},
	{name: "a payload that starts with 00", stored: "00 00 ff", payload: "\x00\xff", wrapped: true},
	{name: "not found", stored: "00 02 00", notFound: true, wrapped: true},
	{name: "a record without fields", stored: "00 01 00 68 69", payload: "hi"},
	{name: "a record with a field", stored: "00 01 80 01 2a 00 68 69", payload: "hi"},
}

func TestTheExamplesInTheDocumentAreTrue(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range golden {
		t.Run(test.name, func(t *testing.T) {
			if test.stored != "" && !strings.Contains(string(doc), "`"+test.stored+"`") {
				t.Errorf("docs/protocol.md does not hold %q", test.stored)
			}
			stored := unhex(t, test.stored)
			payload, notFound, err := Unwrap(stored)
			if payload != test.payload || notFound != test.notFound || err != nil {
				t.Errorf("Unwrap = %q, %v, %v; want %q, %v", payload, notFound, err, test.payload, test.notFound)
			}
			if !test.wrapped {
				return
			}
			wrapped := WrapValue(test.payload)
			if test.notFound {
				wrapped = NotFound()
			}
			if wrapped != stored {
				t.Errorf("it is stored as % x, want %s", wrapped, test.stored)
			}
		})
	}
}

func unhex(t *testing.T, s string) string {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestARecordIsUsedOnlyIfAllOfItIsUnderstood(t *testing.T) {
	long := strings.Repeat("c", 300)
	for _, test := range []struct {
		name, stored, payload string
		notFound, bad         bool
	}{
		{name: "no value starts with 00 alone", stored: "\x00", bad: true},
		{name: "kind 3", stored: "\x00\x03\x00payload", bad: true},
		{name: "kind 255", stored: "\x00\xff\x00payload", bad: true},
		{name: "payload 00", stored: "\x00\x00", payload: "\x00"},
		{name: "payload 00 01", stored: "\x00\x00\x01", payload: "\x00\x01"},
		{name: "empty payload in a record", stored: "\x00\x01\x00"},
		{name: "payload of a record starts with 00", stored: "\x00\x01\x00\x00\x02\x00", payload: "\x00\x02\x00"},
		{name: "fields do not begin", stored: "\x00\x01", bad: true},
		{name: "fields do not end", stored: "\x00\x01\x80\x01a", bad: true},
		{name: "field without a length", stored: "\x00\x01\x80", bad: true},
		{name: "field without its content", stored: "\x00\x01\x80\x02a", bad: true},
		{name: "field whose length does not end", stored: "\x00\x01\x80\xff\xff", bad: true},
		{name: "field whose length overflows", stored: "\x00\x01\x80" + strings.Repeat("\xff", 10) + "\x01\x00", bad: true},
		{name: "field as long as an integer can be", stored: "\x00\x01\x80\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00", bad: true},
		{name: "empty field", stored: "\x00\x01\x80\x00\x00v", payload: "v"},
		{name: "long field", stored: "\x00\x01\xff\xac\x02" + long + "\x00v", payload: "v"},
		{name: "several fields", stored: "\x00\x01\x80\x01a\x81\x00\x80\x02bc\x00v", payload: "v"},
		{name: "field that must be known", stored: "\x00\x01\x01\x01a\x00v", bad: true},
		{name: "field 7f must be known", stored: "\x00\x01\x7f\x01a\x00v", bad: true},
		{name: "field that must be known after one that may not", stored: "\x00\x01\x80\x01a\x02\x00\x00v", bad: true},
		{name: "not found with a field", stored: "\x00\x02\x80\x01a\x00", notFound: true},
		{name: "not found with a payload", stored: "\x00\x02\x00x", bad: true},
		{name: "not found without an end", stored: "\x00\x02", bad: true},
		{name: "not found with a field that must be known", stored: "\x00\x02\x01\x00\x00", bad: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			payload, notFound, err := Unwrap(test.stored)
			if test.bad {
				if !errors.Is(err, ErrRecord) || payload != "" || notFound {
					t.Errorf("Unwrap = %q, %v, %v; want ErrRecord and nothing else", payload, notFound, err)
				}
				return
			}
			if payload != test.payload || notFound != test.notFound || err != nil {
				t.Errorf("Unwrap = %q, %v, %v; want %q, %v", payload, notFound, err, test.payload, test.notFound)
			}
		})
	}
}

func FuzzRecordRoundTrip(f *testing.F) {
	for _, payload := range []string{"", "v", "\x00", "\x00\x00", "\x00\x01\x00v", NotFound(), RecordNotFound, "null", "\xff"} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		stored := WrapValue(payload)
		if got, notFound, err := Unwrap(stored); got != payload || notFound || err != nil {
			t.Errorf("%q is stored as %q, which is read as %q, %v, %v", payload, stored, got, notFound, err)
		}
		if !strings.HasPrefix(payload, "\x00") && stored != payload {
			t.Errorf("%q is stored as %q, want it as it is", payload, stored)
		}
		// The invalidate script tells a not-found record by how it begins.
		if strings.HasPrefix(stored, RecordNotFound) {
			t.Errorf("%q is stored as %q, which begins like a not-found record", payload, stored)
		}
	})
}

// FuzzUnwrap reads records as docs/protocol.md specifies them, written down a
// second time.
func FuzzUnwrap(f *testing.F) {
	for _, stored := range []string{"", "v", "\x00", "\x00\x00\xff", "\x00\x01\x80\x01a\x00v", "\x00\x01\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x00\x02\x00", "\x00\x02\x00x", "\x00\x01\x01\x00\x00"} {
		f.Add(stored)
	}
	f.Fuzz(func(t *testing.T, stored string) {
		payload, notFound, err := Unwrap(stored)
		wantPayload, wantNotFound, ok := specified(stored)
		if payload != wantPayload || notFound != wantNotFound || (err == nil) != ok {
			t.Errorf("Unwrap(%q) = %q, %v, %v; want %q, %v, valid %v", stored, payload, notFound, err, wantPayload, wantNotFound, ok)
		}
		if err != nil && !errors.Is(err, ErrRecord) {
			t.Errorf("Unwrap(%q): %v is not ErrRecord", stored, err)
		}
	})
}

func specified(stored string) (payload string, notFound, ok bool) {
	if stored == "" || stored[0] != 0 {
		return stored, false, true
	}
	if len(stored) < 2 {
		return "", false, false
	}
	kind, rest := stored[1], stored[2:]
	if kind == 0 {
		return stored[1:], false, true
	}
	if kind > 2 {
		return "", false, false
	}
	for {
		if rest == "" {
			return "", false, false
		}
		tag := rest[0]
		rest = rest[1:]
		if tag == 0 {
			break
		}
		if tag < 0x80 {
			return "", false, false
		}
		length, shift := uint64(0), 0
		for {
			if rest == "" || shift > 63 || shift == 63 && rest[0] > 1 {
				return "", false, false
			}
			b := rest[0]
			rest = rest[1:]
			length |= uint64(b&0x7f) << shift
			shift += 7
			if b < 0x80 {
				break
			}
		}
		if length > uint64(len(rest)) {
			return "", false, false
		}
		rest = rest[length:]
	}
	if kind == 2 {
		return "", rest == "", rest == ""
	}
	return rest, false, true
}
