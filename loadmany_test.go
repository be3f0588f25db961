package leasecache

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestWhatIsDecidedForOneKeyComesBeforeWhatIsForAll(t *testing.T) {
	l := &Load{}
	l.several()
	l.SetTTL(time.Hour)
	l.For("b").SetTTL(time.Minute)
	l.For("c").DoNotStore()
	for _, test := range []struct {
		key        string
		doNotStore bool
		ttl        time.Duration
	}{{"a", false, time.Hour}, {"b", false, time.Minute}, {"c", true, time.Hour}} {
		if not, ttl, set := l.of(test.key); not != test.doNotStore || ttl != test.ttl || !set {
			t.Errorf("%s: do not store %v, TTL %v, %v", test.key, not, ttl, set)
		}
	}
	if b := l.For("b"); b != l.For("b") {
		t.Error("For returns another Load each time")
	}
}

func TestTheLoadOfOneKeyIsThatOfTheKey(t *testing.T) {
	l := &Load{}
	if l.For("any") != l {
		t.Error("For returns another Load")
	}
	l.NotFound("any") // does nothing
	var none *Load
	none.NotFound("k")
	none.For("k").SetTTL(time.Hour)
	none.For("k").DoNotStore()
}

func TestWhatABatchSaysOfAKey(t *testing.T) {
	l := &Load{}
	l.several()
	l.NotFound("gone", "both")
	values := map[string]string{"a": "v", "both": "v", "empty": ""}
	for _, test := range []struct {
		key   string
		err   error
		value string
		want  error
	}{
		{"a", nil, "v", nil},
		{"empty", nil, "", nil},
		{"both", nil, "v", nil},
		{"gone", nil, "", ErrNotFound},
		{"lost", nil, "", ErrNotLoaded},
		{"a", io.EOF, "", io.EOF},
		{"gone", fmt.Errorf("row 7: %w", ErrNotFound), "", ErrNotLoaded},
	} {
		v, err := batch[string]{values, test.err}.value(test.key, l)
		if v != test.value || !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s, with %v: %q, %v; want %q, %v", test.key, test.err, v, err, test.value, test.want)
		}
		if !errors.Is(test.want, ErrNotFound) && errors.Is(err, ErrNotFound) {
			t.Errorf("%s, with %v: %v is ErrNotFound, and would be cached", test.key, test.err, err)
		}
	}
}

func TestABatchErrorNamesItsKeysAndWrapsTheirErrors(t *testing.T) {
	e := &BatchError{Errs: map[string]error{}}
	for i := range 1000 {
		key := fmt.Sprint("key", i)
		e.Keys, e.Errs[key] = append(e.Keys, key), io.EOF
	}
	e.Errs["key7"] = io.ErrUnexpectedEOF
	text := e.Error()
	if !strings.HasPrefix(text, `leasecache: not read: "key0", "key1", `) || !strings.HasSuffix(text, `"key9", and 990 more: EOF`) {
		t.Errorf("it prints %s", text)
	}
	err := fmt.Errorf("wrapped: %w", e)
	if !errors.Is(err, io.EOF) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrNotFound) {
		t.Errorf("it does not wrap the errors of its keys: %v", err)
	}
	if got := e.Unwrap(); len(got) != 1000 || !errors.Is(got[7], io.ErrUnexpectedEOF) {
		t.Errorf("Unwrap returns %d errors", len(got))
	}
	if text := (&BatchError{}).Error(); text == "" {
		t.Error("without keys it prints nothing")
	}
}
