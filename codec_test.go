package leasecache

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type item struct {
	ID   int    `json:"id"`
	Name string `json:"name,omitempty"`
}

type (
	namedString string
	namedBytes  []byte
)

// roundTrip encodes v with the default codec, checks what is stored and returns
// what is read back.
func roundTrip[V any](t *testing.T, v V, stored string) {
	t.Helper()
	c := newCoder[V](nil)
	payload, err := c.encode(v)
	if err != nil || payload != stored {
		t.Errorf("%T %v is encoded as %q, %v; want %q", v, v, payload, err, stored)
		return
	}
	got, err := c.decode(payload)
	if err != nil {
		t.Errorf("%q is not decoded: %v", payload, err)
		return
	}
	if diff := cmp.Diff(v, got); diff != "" {
		t.Errorf("%T came back changed (-want +got):\n%s", v, diff)
	}
}

func TestStringsAndBytesAreStoredAsTheyAreAndAllElseAsJSON(t *testing.T) {
	for _, s := range []string{"", "v", `"quoted"`, "null", "\x00\xff", strings.Repeat("v", 1<<16)} {
		roundTrip(t, s, s)
		roundTrip(t, []byte(s), s)
	}
	roundTrip(t, 42, "42")
	roundTrip(t, true, "true")
	roundTrip(t, item{1, "lamp"}, `{"id":1,"name":"lamp"}`)
	roundTrip(t, &item{ID: 1}, `{"id":1}`)
	roundTrip(t, (*item)(nil), "null")
	roundTrip(t, []item{}, "[]")
	roundTrip(t, []item(nil), "null")
	roundTrip(t, map[string]int{"a": 1}, `{"a":1}`)
	roundTrip(t, namedString("v"), `"v"`)
	roundTrip(t, namedBytes("v"), `"dg=="`)
	roundTrip(t, json.RawMessage(`{"a":1}`), `{"a":1}`)
	roundTrip[any](t, nil, "null")
	roundTrip[any](t, "v", `"v"`)
	roundTrip(t, struct{}{}, "{}")
}

func TestAGivenCodecAlsoTakesStringsAndBytes(t *testing.T) {
	s := newCoder[string](JSON)
	if payload, err := s.encode("v"); payload != `"v"` || err != nil {
		t.Errorf("the string is encoded as %q, %v", payload, err)
	}
	b := newCoder[[]byte](JSON)
	if payload, err := b.encode([]byte("v")); payload != `"dg=="` || err != nil {
		t.Errorf("the bytes are encoded as %q, %v", payload, err)
	}
}

func TestBytesAreTheCallersOwn(t *testing.T) {
	c := newCoder[[]byte](nil)
	v := []byte("value")
	payload, err := c.encode(v)
	if err != nil {
		t.Fatal(err)
	}
	v[0] = 'X'
	first, _ := c.decode(payload)
	if string(first) != "value" {
		t.Errorf("whoever was encoded changed it to %q", first)
	}
	first[0] = 'Y'
	if second, _ := c.decode(payload); string(second) != "value" {
		t.Errorf("another reader changed it to %q", second)
	}
}

func TestAValueThatCannotBeDecodedSaysItsSizeAndTypeAndNotItself(t *testing.T) {
	_, err := newCoder[item](nil).decode(`"secret"`)
	if err == nil || !strings.HasPrefix(err.Error(), "leasecache: decode 8 bytes as leasecache.item: ") || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
		t.Errorf("%v does not wrap the codec's own error", err)
	}
	for _, payload := range []string{"", "{", "{} {}", "\x00"} {
		if _, err := newCoder[item](nil).decode(payload); err == nil {
			t.Errorf("%q is decoded", payload)
		}
	}
	_, err = newCoder[fmt.Stringer](nil).decode("{}")
	if err == nil || !strings.Contains(err.Error(), "as fmt.Stringer") {
		t.Errorf("the error for an interface is %v, want it to name the type", err)
	}
}

type failingCodec struct{ err error }

func (c failingCodec) Marshal(any) ([]byte, error) { return []byte("half"), c.err }
func (c failingCodec) Unmarshal([]byte, any) error { return c.err }

func TestTheErrorsOfACodecAreReachable(t *testing.T) {
	cause := errors.New("no format")
	c := newCoder[item](failingCodec{cause})
	if payload, err := c.encode(item{}); !errors.Is(err, cause) || payload != "" {
		t.Errorf("encode = %q, %v", payload, err)
	}
	if _, err := c.decode("x"); !errors.Is(err, cause) {
		t.Errorf("decode: %v", err)
	}
}

// reusingCodec returns the same buffer each time, as a codec may.
type reusingCodec struct{ buffer []byte }

func (c *reusingCodec) Marshal(v any) ([]byte, error) {
	c.buffer = fmt.Append(c.buffer[:0], v)
	return c.buffer, nil
}
func (c *reusingCodec) Unmarshal([]byte, any) error { return nil }

func TestWhatACodecReturnsIsCopiedBeforeItIsCalledAgain(t *testing.T) {
	c := newCoder[string](&reusingCodec{})
	first, _ := c.encode("first")
	if second, _ := c.encode("other"); first != "first" || second != "other" {
		t.Errorf("encoded are %q and %q", first, second)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, seed := range []string{"", "null", "{}", `{"id":1}`, `{"id":"x"}`, "[", "\x00"} {
		f.Add(seed)
	}
	c := newCoder[item](nil)
	f.Fuzz(func(t *testing.T, payload string) {
		before := strings.Clone(payload)
		v, err := c.decode(payload)
		if payload != before {
			t.Error("decode changed the payload")
		}
		if (err == nil) != (json.Unmarshal([]byte(before), new(item)) == nil) {
			t.Errorf("decode(%q) = %+v, %v", before, v, err)
		}
	})
}

// bomb is a codec with a bug, or a value whose own methods have one.
type bomb struct{}

func (bomb) Marshal(any) ([]byte, error)   { panic("a bug in Marshal") }
func (bomb) Unmarshal([]byte, any) error   { panic(errors.New("a bug in Unmarshal")) }
func (bomb) MarshalJSON() ([]byte, error)  { panic("a bug in Marshal") }
func (*bomb) UnmarshalJSON(b []byte) error { panic("a bug in Unmarshal") }

func TestACodecThatPanicsIsAnErrorWithItsStack(t *testing.T) {
	byCodec, byValue := newCoder[item](bomb{}), newCoder[bomb](nil)
	var errs [4]error
	_, errs[0] = byCodec.encode(item{})
	_, errs[1] = byCodec.decode("{}")
	_, errs[2] = byValue.encode(bomb{})
	_, errs[3] = byValue.decode("{}")
	for i, err := range errs {
		want := []string{"Marshal", "Unmarshal"}[i%2]
		if err == nil || !strings.Contains(err.Error(), "the codec panicked: a bug in "+want) || !strings.Contains(err.Error(), "codec_test.go") {
			t.Errorf("the error is %v", err)
		}
	}
}
