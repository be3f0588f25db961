package leasecache

import (
	"context"
	"testing"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// inBytes is a driver whose every hit is the same bytes.
type inBytes struct {
	present
	bytes []byte
}

func (b inBytes) Bound(time.Duration) driver.Evaler { return b }

func (b inBytes) GetBytes(context.Context, string) ([]byte, bool, error) { return b.bytes, true, nil }

func TestAHitOfBytesIsNotCopiedUnlessOthersHaveIt(t *testing.T) {
	d := inBytes{bytes: []byte("v")}
	for _, tt := range []struct {
		name string
		o    Options
		same bool
	}{
		{"by itself", Options{Prefix: "a:"}, true},
		{"shared", Options{Prefix: "b:", ShareReads: true}, false},
	} {
		o := tt.o
		o.TTL = time.Minute
		c, err := New[[]byte](d, o)
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Get(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("v"), nil })
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := len(v) > 0 && &v[0] == &d.bytes[0]; got != tt.same {
			t.Errorf("%s: the bytes of the driver are the caller's: %v, want %v", tt.name, got, tt.same)
		}
	}
}

func TestAHitAllocatesTheNameOfItsRedisKeyAndNothingElse(t *testing.T) {
	c := mustCache(t, present{}, Options{Prefix: "catalog:"})
	ctx := t.Context()
	got := testing.AllocsPerRun(1000, func() {
		if _, err := c.Get(ctx, "42", never); err != nil {
			t.Fatal(err)
		}
	})
	t.Log(got)
	// The name is a string that the client may keep until its command is sent, so
	// it cannot be taken from a pool.
	if got > 1 {
		t.Errorf("a hit allocates %v times, want 1", got)
	}
}
