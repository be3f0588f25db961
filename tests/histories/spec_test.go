package histories

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const specStale = 100 // nanoseconds

// late is too late for a copy that was made at 4.
const late = 5 + specStale + int64(serverTick)

func TestSpec(t *testing.T) {
	w := func(version, call, ret int64) Operation { return Operation{Write, "k", 0, version, call, ret} }
	i := func(call, ret int64) Operation { return Operation{Invalidate, "k", 1, 0, call, ret} }
	r := func(version, call, ret int64) Operation { return Operation{Read, "k", 2, version, call, ret} }
	s := func(version, call, ret int64) Operation { return Operation{StaleRead, "k", 3, version, call, ret} }
	for _, c := range []struct {
		name    string
		history []Operation
		wrong   string // a part of what is said of it; empty if it is right
	}{
		{"the version of the source", []Operation{r(0, 1, 2), w(1, 3, 4), r(1, 5, 6)}, ""},
		{"an older version until the invalidation", []Operation{w(1, 1, 2), r(0, 3, 4), i(5, 8), r(1, 9, 10)}, ""},
		{"an older version beside the invalidation", []Operation{w(1, 1, 2), i(3, 8), r(0, 4, 5), r(1, 6, 7), r(0, 7, 20)}, ""},
		{"an older version after the invalidation", []Operation{w(1, 1, 2), i(3, 8), r(0, 9, 10)}, "no order"},
		{"an older version long after the invalidation", []Operation{w(1, 1, 2), i(3, 8), r(1, 9, 10), r(0, 11, 12)}, "no order"},
		{"what was written while it was invalidated", []Operation{w(1, 1, 2), i(3, 8), w(2, 4, 5), r(1, 9, 10)}, ""},
		{"a version before it is written", []Operation{r(1, 1, 2), w(1, 3, 4)}, "no order"},
		{"a version while it is written", []Operation{r(1, 1, 4), w(1, 3, 5)}, ""},
		{"a version that is never written", []Operation{r(1, 1, 2)}, "no order"},
		{"two versions out of order", []Operation{w(2, 1, 2), w(1, 3, 4)}, "no order"},
		{"an invalidation of which nothing is known, done", []Operation{w(1, 1, 2), i(3, unknown), r(1, 5, 6), r(0, 7, 8)}, ""},
		{"an invalidation after one of which nothing is known", []Operation{w(1, 1, 2), i(3, unknown), i(4, 5), r(0, 7, 8)}, "no order"},
		{"a stale copy in its time", []Operation{w(1, 1, 2), i(3, 4), s(0, 4+specStale, 200)}, ""},
		{"a stale copy after its time", []Operation{w(1, 1, 2), i(3, 4), s(0, late, late+10)}, "as stale"},
		{"a stale copy after its time, invalidated again", []Operation{w(1, 1, 2), i(3, 4), i(50, 60), s(0, late, late+10)}, "as stale"},
		{"a stale copy from the future", []Operation{s(1, 1, 2), w(1, 3, 4)}, "no order"},
		{"a stale copy that nothing superseded", []Operation{w(1, 1, 2), s(0, 300, 400)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := checkKey("k", c.history, specStale, 10*time.Second)
			switch {
			case v == nil && c.wrong != "":
				t.Errorf("it passes; want %q", c.wrong)
			case v != nil && (c.wrong == "" || !strings.Contains(v.Why, c.wrong)):
				t.Errorf("it fails: %s; want %q", v.Why, c.wrong)
			}
		})
	}
}

// A search that did not end has shown nothing.
func TestASearchWithoutResultIsAViolation(t *testing.T) {
	history := []Operation{{Write, "k", 0, 1, 1, 2}, {Invalidate, "k", 0, 0, 3, 4}}
	for n := range 40 { // 2^40 sets of reads that may come before the one that cannot be
		history = append(history, Operation{Read, "k", n, 1, 5, 100})
	}
	history = append(history, Operation{Read, "k", 99, 0, 5, 101})
	if v := checkKey("k", history, 0, time.Millisecond); v == nil {
		t.Error("it passes")
	}
}

func TestAViolationIsDrawn(t *testing.T) {
	v := checkKey("k", []Operation{{Write, "k", 0, 1, 1, 2}, {Invalidate, "k", 1, 0, 3, 4}, {Read, "k", 2, 0, 5, 6}}, 0, 10*time.Second)
	if v == nil {
		t.Fatal("it passes")
	}
	file := filepath.Join(t.TempDir(), "history.html")
	if drawn, err := v.Draw(file); !drawn || err != nil {
		t.Fatalf("drawn: %v, error: %v", drawn, err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "invalidate below 1") {
		t.Error("the picture does not show the invalidation")
	}
}

func TestWhatAKilledProcessLeaves(t *testing.T) {
	got, err := collect(strings.NewReader("R 3 k 1 2 7\nbegin 1 10 k l\nbegin 2 11 k\nend 1 12\nerror true ErrUnavailable\nerror false who?\nR 1 k 5"), 2, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	want := []Operation{{Read, "k", 203, 7, 1, 2}, {Invalidate, "k", 200, 0, 10, 12}, {Invalidate, "l", 200, 0, 10, 12}, {Invalidate, "k", 200, 0, 11, unknown}}
	if len(got.operations) != len(want) {
		t.Fatalf("got %+v; want %+v", got.operations, want)
	}
	for i := range want {
		if got.operations[i] != want[i] {
			t.Errorf("got %+v; want %+v", got.operations[i], want[i])
		}
	}
	if got.errors["ErrUnavailable"] != 1 || len(got.wrong) != 1 || got.wrong[0] != "who?" {
		t.Errorf("got the errors %v and %q", got.errors, got.wrong)
	}
}
