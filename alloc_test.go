package leasecache

import (
	"testing"
)

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
