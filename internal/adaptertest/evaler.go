package adaptertest

import (
	"context"
	"testing"

	"github.com/leasecache/leasecache/driver"
)

// Script is what Eval runs.
var Script = driver.NewScript("test", "return ARGV[1]")

// Eval runs Script with one key and one argument.
func Eval(ctx context.Context, e driver.Evaler) (driver.Reply, error) {
	return e.Eval(ctx, Script, []string{"{k}"}, []string{"a"})
}

// Get gets the same key. It fails the test if e has no [driver.Getter].
func Get(ctx context.Context, t testing.TB, e driver.Evaler) (string, bool, error) {
	t.Helper()
	g, ok := e.(driver.Getter)
	if !ok {
		t.Fatalf("%T has no Get", e)
	}
	return g.Get(ctx, "{k}")
}

// Calls returns the kinds of calls of an Evaler that has all abilities, by the
// command that each sends.
func Calls(t testing.TB, e driver.Evaler) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"EVALSHA": func(ctx context.Context) error { _, err := Eval(ctx, e); return err },
		"GET":     func(ctx context.Context) error { _, _, err := Get(ctx, t, e); return err },
		"PING":    func(ctx context.Context) error { return e.(driver.Pinger).Ping(ctx) },
	}
}

// Abilities names what e can do beside scripts.
func Abilities(e driver.Evaler) (names []string) {
	if _, ok := e.(driver.Getter); ok {
		names = append(names, "get")
	}
	if _, ok := e.(driver.Bounder); ok {
		names = append(names, "bound")
	}
	if _, ok := e.(driver.Pinger); ok {
		names = append(names, "ping")
	}
	if _, ok := e.(driver.Closer); ok {
		names = append(names, "close")
	}
	if v, ok := e.(driver.Validator); ok && v.Validate() != nil {
		names = append(names, "invalid")
	}
	return names
}
