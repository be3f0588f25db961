package redigo

import (
	"context"
	"fmt"

	"github.com/leasecache/leasecache/driver"
)

// GetBatch implements [driver.BatchGetter].
func (e full) GetBatch(ctx context.Context, keys []string) []driver.GetResult {
	results := make([]driver.GetResult, len(keys))
	cmds := make([]batched, len(keys))
	args := make([]any, len(keys))
	for i, key := range keys {
		args[i] = key
		cmds[i] = batched{"GET", args[i : i+1 : i+1], func(v any, err error) {
			r := &results[i]
			switch v := v.(type) {
			case []byte:
				r.Value, r.OK = asString(v), true
			case nil:
				r.Err = err
			default:
				r.Err = fmt.Errorf("redigo: GET returned a %T: want a string or nil", v)
			}
		}}
	}
	e.pipeline(ctx, cmds, nil)
	return results
}
