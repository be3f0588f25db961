package miniredis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/leasecache/leasecache/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustSet(t *testing.T, m *miniredis.Miniredis, key, value string) {
	t.Helper()
	if err := m.Set(key, value); err != nil {
		t.Fatal(err)
	}
}

// eval runs a script that must succeed, and returns its reply as [show] prints it.
func eval(t *testing.T, e driver.Evaler, source string, keys, args []string) string {
	t.Helper()
	r, err := e.Eval(t.Context(), driver.NewScript("test", source), keys, args)
	if err != nil {
		t.Fatalf("Eval: %v\nscript: %s", err, source)
	}
	return show(r)
}

// show prints a reply with its contents, strings quoted: {1 "a" nil}.
func show(r driver.Reply) string {
	switch r.Kind() {
	case driver.KindString:
		s, _ := r.Str()
		return fmt.Sprintf("%q", s)
	case driver.KindList:
		elems := make([]string, r.Len())
		for i := range elems {
			elems[i] = show(r.At(i))
		}
		return "{" + strings.Join(elems, " ") + "}"
	}
	return r.String()
}
