//go:build mutants

package drivermutants

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

// The abilities for batches of the honest driver, and the drivers that break their
// rules.

// EvalBatch implements [driver.Batcher].
func (c *client) EvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	return c.evalBatch(c, ctx, calls)
}

// GetBatch implements [driver.BatchGetter].
func (c *client) GetBatch(ctx context.Context, keys []string) []driver.GetResult {
	return c.getBatch(c, ctx, keys)
}

func (c *client) doEvalBatch(ctx context.Context, calls []driver.Call) []driver.Result {
	call, cancel := c.within(ctx) // one bound for both attempts
	defer cancel()
	results := make([]driver.Result, len(calls))
	all := make([]int, len(calls))
	for i := range all {
		all[i] = i
	}
	c.evalSome(call, calls, all, results, "EVALSHA", (*driver.Script).SHA1)
	var again []int
	for i, r := range results {
		if c.unknown(r.Err) {
			again = append(again, i)
		}
	}
	c.evalSome(call, calls, again, results, "EVAL", (*driver.Script).Source)
	return results
}

func (c *client) evalSome(ctx context.Context, calls []driver.Call, some []int, results []driver.Result, name string, script func(*driver.Script) string) {
	commands := make([][]string, len(some))
	for j, i := range some {
		commands[j] = c.command(name, script(calls[i].Script), calls[i].Keys, calls[i].Args)
	}
	vs, errs := c.pipeline(c, ctx, commands)
	for j, i := range some {
		if results[i] = (driver.Result{Err: errs[j]}); errs[j] == nil {
			results[i].Reply, results[i].Err = c.reply(vs[j])
		}
	}
}

func (c *client) doGetBatch(ctx context.Context, keys []string) []driver.GetResult {
	call, cancel := c.within(ctx)
	defer cancel()
	commands := make([][]string, len(keys))
	for i, key := range keys {
		commands[i] = []string{"GET", key}
	}
	vs, errs := c.pipeline(c, call, commands)
	results := make([]driver.GetResult, len(keys))
	for i := range keys {
		r := &results[i]
		var v driver.Reply
		if r.Err = errs[i]; r.Err == nil {
			v, r.Err = c.reply(vs[i])
		}
		r.Value, r.OK = v.Str()
	}
	return results
}

// doPipeline writes commands, and reads their replies, on one connection.
func (c *client) doPipeline(ctx context.Context, commands [][]string) ([]resp.Value, []error) {
	vs, errs := make([]resp.Value, len(commands)), make([]error, len(commands))
	fail := func(from int, err error) ([]resp.Value, []error) {
		for i := from; i < len(errs); i++ {
			errs[i] = err
		}
		return vs, errs
	}
	if len(commands) == 0 {
		return vs, errs
	}
	if err := ctx.Err(); err != nil {
		return fail(0, driver.NotSent(err))
	}
	cn, err := c.pool.take(ctx)
	if err != nil {
		return fail(0, driver.NotSent(driver.CallError(ctx, err)))
	}
	stop := context.AfterFunc(ctx, func() { cn.nc.SetDeadline(time.Unix(1, 0)) })
	cn.buf = cn.buf[:0]
	for _, command := range commands {
		cn.buf = resp.AppendCommand(cn.buf, command...)
	}
	n := 0
	if _, err = cn.nc.Write(cn.buf); err == nil {
		for ; n < len(commands); n++ {
			if vs[n], err = resp.ReadValue(cn.r); err != nil {
				break
			}
		}
	}
	c.pool.give(cn, stop() && err == nil)
	return fail(n, driver.CallError(ctx, err))
}

// evalBatches changes what EvalBatch does, and pipelines how commands are sent.
func evalBatches(f func(c *client, ctx context.Context, calls []driver.Call) []driver.Result) func(*client) {
	return func(c *client) { c.evalBatch = f }
}

func getBatches(f func(c *client, ctx context.Context, keys []string) []driver.GetResult) func(*client) {
	return func(c *client) { c.getBatch = f }
}

func pipelines(f func(c *client, ctx context.Context, commands [][]string) ([]resp.Value, []error)) func(*client) {
	return func(c *client) { c.pipeline = f }
}

func replied(err error) bool {
	_, ok := errors.AsType[*driver.ServerError](err)
	return ok
}

func init() {
	catalogue = append(catalogue, []mutant{
		{"a batch: results in another order", "BatchReturnsResultsInOrder", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := c.doEvalBatch(ctx, calls)
			slices.Reverse(results)
			return results
		})},
		{"a batch: loses a result", "BatchReturnsResultsInOrder", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := c.doEvalBatch(ctx, calls)
			return results[:max(len(results)-1, 0)]
		})},
		{"a batch: one script for all", "BatchReturnsResultsInOrder", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			calls = slices.Clone(calls)
			for i := range calls {
				calls[i].Script = calls[0].Script
			}
			return c.doEvalBatch(ctx, calls)
		})},
		{"a batch: equal calls are sent once", "BatchRunsEachCallOnce", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := make([]driver.Result, len(calls))
			for i, call := range calls {
				same := slices.IndexFunc(calls[:i], func(o driver.Call) bool {
					return o.Script == call.Script && slices.Equal(o.Keys, call.Keys) && slices.Equal(o.Args, call.Args)
				})
				if same >= 0 {
					results[i] = results[same]
				} else {
					results[i] = c.doEvalBatch(ctx, []driver.Call{call})[0]
				}
			}
			return results
		})},
		{"a batch: an error ends the others", "BatchErrorIsOfItsCall", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := make([]driver.Result, len(calls))
			var failed error
			for i, call := range calls {
				if failed != nil {
					results[i].Err = driver.NotSent(failed)
					continue
				}
				results[i] = c.doEvalBatch(ctx, []driver.Call{call})[0]
				failed = results[i].Err
			}
			return results
		})},
		{"a batch: an error is that of all", "BatchErrorIsOfItsCall", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := c.doEvalBatch(ctx, calls)
			if i := slices.IndexFunc(results, func(r driver.Result) bool { return replied(r.Err) }); i >= 0 {
				for j := range results {
					results[j] = results[i]
				}
			}
			return results
		})},
		{"a batch: an error sends all again", "BatchErrorIsOfItsCall", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := c.doEvalBatch(ctx, calls)
			if slices.ContainsFunc(results, func(r driver.Result) bool { return replied(r.Err) }) {
				return c.doEvalBatch(ctx, calls)
			}
			return results
		})},
		{"a batch: no fallback", "BatchFallsBackOnNoScript", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			unknowing := *c
			steps := *c.steps
			steps.unknown = func(error) bool { return false }
			unknowing.steps = &steps
			return unknowing.doEvalBatch(ctx, calls)
		})},
		{"a batch: all of it again after NOSCRIPT", "BatchFallsBackOnNoScript", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := make([]driver.Result, len(calls))
			all := make([]int, len(calls))
			for i := range all {
				all[i] = i
			}
			c.evalSome(ctx, calls, all, results, "EVALSHA", (*driver.Script).SHA1)
			if slices.ContainsFunc(results, func(r driver.Result) bool { return isNoScript(r.Err) }) {
				c.evalSome(ctx, calls, all, results, "EVAL", (*driver.Script).Source)
			}
			return results
		})},
		{"a batch: all of it again when a reply is lost", "BatchSendsOnceWhenAReplyIsLost", pipelines(func(c *client, ctx context.Context, commands [][]string) ([]resp.Value, []error) {
			vs, errs := c.doPipeline(ctx, commands)
			if slices.ContainsFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, driver.ErrNotSent) }) {
				return c.doPipeline(ctx, commands)
			}
			return vs, errs
		})},
		{"a batch: what got no reply is not sent", "BatchSendsOnceWhenAReplyIsLost", pipelines(func(c *client, ctx context.Context, commands [][]string) ([]resp.Value, []error) {
			vs, errs := c.doPipeline(ctx, commands)
			for i, err := range errs {
				if err != nil {
					errs[i] = driver.NotSent(err)
				}
			}
			return vs, errs
		})},
		{"a batch: sent though its context is done", "BatchWithADoneContextIsNotSent", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			results := c.doEvalBatch(context.WithoutCancel(ctx), calls)
			if err := ctx.Err(); err != nil {
				for i := range results {
					results[i] = driver.Result{Err: driver.NotSent(err)}
				}
			}
			return results
		})},
		{"a batch: the first error alone is reported", "BatchOnAServerThatIsDown", pipelines(func(c *client, ctx context.Context, commands [][]string) ([]resp.Value, []error) {
			vs, errs := c.doPipeline(ctx, commands)
			first := slices.IndexFunc(errs, func(err error) bool { return err != nil })
			for i := range errs {
				if i != first {
					errs[i] = nil
				}
			}
			return vs, errs
		})},
		{"a batch: 256 calls at most", "BatchOfManyLongCalls", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			return append(c.doEvalBatch(ctx, calls[:min(len(calls), 256)]), make([]driver.Result, max(len(calls)-256, 0))...)
		})},
		{"a batch: not bounded", "BoundEndsTheBatch", evalBatches(func(c *client, ctx context.Context, calls []driver.Call) []driver.Result {
			free := *c
			free.bound = 0
			return free.doEvalBatch(ctx, calls)
		})},
		{"a batch of GETs: none is an empty value", "GetBatchReturnsTheValues", getBatches(func(c *client, ctx context.Context, keys []string) []driver.GetResult {
			results := c.doGetBatch(ctx, keys)
			for i := range results {
				results[i].OK = results[i].Err == nil
			}
			return results
		})},
		{"a batch of GETs: an empty value is none", "GetBatchReturnsTheValues", getBatches(func(c *client, ctx context.Context, keys []string) []driver.GetResult {
			results := c.doGetBatch(ctx, keys)
			for i := range results {
				results[i].OK = results[i].Value != ""
			}
			return results
		})},
		{"a batch of GETs: an error is no value", "GetBatchReturnsTheValues", getBatches(func(c *client, ctx context.Context, keys []string) []driver.GetResult {
			results := c.doGetBatch(ctx, keys)
			for i, r := range results {
				if replied(r.Err) {
					results[i] = driver.GetResult{}
				}
			}
			return results
		})},
		{"a batch of GETs: what got no reply is not sent", "GetBatchSortsItsErrors", getBatches(func(c *client, ctx context.Context, keys []string) []driver.GetResult {
			results := c.doGetBatch(ctx, keys)
			for i, r := range results {
				if r.Err != nil && !replied(r.Err) {
					results[i].Err = driver.NotSent(r.Err)
				}
			}
			return results
		})},
		{"a batch of GETs: sent though its context is done", "GetBatchSortsItsErrors", getBatches(func(c *client, ctx context.Context, keys []string) []driver.GetResult {
			return c.doGetBatch(context.WithoutCancel(ctx), keys)
		})},
	}...)
}
