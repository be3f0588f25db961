package tests

import (
	"context"
	"testing"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// newCache returns a cache of strings that is closed with the test.
func newCache(t testing.TB, e driver.Evaler, o leasecache.Options) *leasecache.Cache[string] {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = 10 * time.Minute
	}
	c, err := leasecache.New[string](e, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

func constant(v string) leasecache.Loader[string] {
	return func(context.Context) (string, error) { return v, nil }
}
