package miniredis

import (
	"context"
	"errors"

	"github.com/leasecache/leasecache/driver"
)

var (
	_ driver.Batcher     = (*Server)(nil)
	_ driver.BatchGetter = (*Server)(nil)
	_ driver.Batcher     = (*evaler)(nil)
	_ driver.BatchGetter = (*evaler)(nil)
)

// EvalBatch implements [driver.Batcher]. The server is in the process: there are no
// round trips to spare, and the calls run one after the other.
func (e *evaler) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	results := make([]driver.Result, len(calls))
	e.batch(ctx, len(calls), func(c *conn, i int) error {
		var err error
		results[i].Reply, err = c.eval(calls[i].Script, calls[i].Keys, calls[i].Args)
		return err
	}, func(i int, err error) { results[i] = driver.Result{Err: err} })
	return results
}

// GetBatch implements [driver.BatchGetter].
func (e *evaler) GetBatch(ctx context.Context, keys []string) []driver.GetResult {
	results := make([]driver.GetResult, len(keys))
	e.batch(ctx, len(keys), func(c *conn, i int) error {
		reply, err := c.do("GET", keys[i])
		if err == nil {
			r := &results[i]
			r.Value, r.OK, err = got(reply)
		}
		return err
	}, func(i int, err error) { results[i] = driver.GetResult{Err: err} })
	return results
}

// batch runs n commands on one connection, within the bound and ctx. failed gets
// the errors.
func (e *evaler) batch(ctx context.Context, n int, command func(c *conn, i int) error, failed func(i int, err error)) {
	done := 0
	_, err := e.do(ctx, func(c *conn) (driver.Reply, error) {
		for ; done < n; done++ {
			err := command(c, done)
			if _, replied := errors.AsType[*driver.ServerError](err); replied {
				failed(done, err)
			} else if err != nil {
				return driver.Reply{}, err
			}
		}
		return driver.Reply{}, nil
	})
	if err == nil {
		return
	}
	for i := done; i < n; i++ {
		if i > done && !errors.Is(err, driver.ErrNotSent) {
			err = driver.NotSent(err) // those after the one that got no reply
		}
		failed(i, err)
	}
}
