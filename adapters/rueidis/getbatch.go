package rueidis

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// GetBatch implements [driver.BatchGetter]. The commands are those of Get.
func (e full) GetBatch(ctx context.Context, keys []string) []driver.GetResult {
	results := make([]driver.GetResult, len(keys))
	e.multi(ctx, e.bound.context(ctx), len(keys), func(i int) rueidis.Completed {
		return e.client.B().Arbitrary("get").Keys(keys[i]).Build()
	}, func(i int, m rueidis.RedisMessage, err error) {
		r := &results[i]
		if r.Err = err; err == nil && !m.IsNil() {
			r.Value, r.Err = m.ToString()
			r.OK = r.Err == nil
		}
	})
	return results
}
