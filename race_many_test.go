package leasecache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// batched is the model with batches, whose calls run beside each other.
type batched struct{ *model }

func (b batched) Bound(time.Duration) driver.Evaler { return b }

func (b batched) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	results := make([]driver.Result, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() { results[i].Reply, results[i].Err = b.Eval(ctx, c.Script, c.Keys, c.Args) })
	}
	wg.Wait()
	return results
}

// loadMany returns a loader of several rows that does what those do, at random.
func (s *source) loadMany(process int) BatchLoader[string] {
	return func(ctx context.Context, keys []string) (map[string]string, error) {
		values := map[string]string{}
		for _, key := range keys {
			var i int
			if _, err := fmt.Sscanf(key, "row%d", &i); err != nil {
				return nil, err
			}
			r := &s.rows[i]
			raise(&r.most, r.loading[process].Add(1))
			defer r.loading[process].Add(-1)
			version := r.committed.Load()
			dawdle()
			values[key] = strconv.FormatInt(version, 10)
			switch rand.N(40) {
			case 0:
				return values, errLoad
			case 1:
				delete(values, key)
			case 2:
				delete(values, key)
				LoadFrom(ctx).NotFound(key)
			case 3:
				LoadFrom(ctx).For(key).DoNotStore()
			case 4:
				LoadFrom(ctx).For(key).SetTTL(time.Millisecond)
			case 5:
				panic("batch")
			case 6:
				runtime.Goexit()
			}
		}
		return values, nil
	}
}

// manyCall reads all rows by one call, and reports whether it brought a version,
// which was checked.
func manyCall(t *testing.T, ctx context.Context, src *source, c *Cache[string], process int, stale bool) (checked bool) { //nolint:revive // t is the context of a test
	t.Helper()
	keys := make([]string, len(src.rows))
	confirmed := map[string]int64{}
	for k, i := range rand.Perm(len(src.rows)) {
		keys[k] = rowKey(i)
		confirmed[keys[k]] = src.rows[i].confirmed.Load()
	}
	var values map[string]string
	var err error
	returned, panicked := apart(func() { values, err = c.GetMany(ctx, keys, src.loadMany(process)) })
	if _, ok := panicked.(*PanicError); panicked != nil && !ok {
		t.Errorf("GetMany panicked with %v", panicked)
	}
	if !returned {
		return false
	}
	be, _ := errors.AsType[*BatchError](err)
	if err != nil && be == nil {
		t.Errorf("GetMany returned %v", err)
		return false
	}
	for _, key := range keys {
		text, ok := values[key]
		if !ok {
			if be != nil && be.Errs[key] != nil {
				versionIn(t, ctx, be.Errs[key])
			}
			continue
		}
		if be != nil && be.Errs[key] != nil {
			t.Errorf("GetMany returned both a value and an error for %s", key)
		}
		if version, perr := strconv.ParseInt(text, 10, 64); !stale && (perr != nil || version < confirmed[key]) {
			t.Errorf("GetMany by process %d returned %q for %s; version %d was confirmed before it started", process, text, key, confirmed[key])
		}
		checked = true
	}
	return checked
}
