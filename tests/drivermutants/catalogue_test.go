//go:build mutants

package drivermutants

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
)

// mutant is the honest driver with one fault.
type mutant struct {
	name  string
	rule  string // the case of the conformance suite that has to fail it
	fault func(c *client)
}

// catalogue holds every mutant, by the rule that it breaks. Every rule of Eval
// and of the abilities has one at least.
var catalogue = []mutant{
	{"loses the last argument", "KeysAndArgsUnchanged", commands(func(name, script string, keys, args []string) []string {
		return command(name, script, keys, args[:max(len(args)-1, 0)])
	})},
	{"drops empty arguments", "KeysAndArgsUnchanged", commands(func(name, script string, keys, args []string) []string {
		return command(name, script, keys, slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "" }))
	})},
	{"counts the arguments as keys", "KeysAndArgsUnchanged", commands(func(name, script string, keys, args []string) []string {
		return command(name, script, slices.Concat(keys, args), nil)
	})},
	{"puts a prefix before keys", "KeysAndArgsUnchanged", commands(func(name, script string, keys, args []string) []string {
		return command(name, script, mapped(keys, func(s string) string { return "app:" + s }), args)
	})},
	{"truncates at a NUL", "KeysAndArgsUnchanged", eachString(func(s string) string {
		before, _, _ := strings.Cut(s, "\x00")
		return before
	})},
	{"trims white space", "KeysAndArgsUnchanged", eachString(strings.TrimSpace)},
	{"sends valid UTF-8 only", "KeysAndArgsUnchanged", eachString(func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") })},
	{"formats numbers in a way of its own", "KeysAndArgsUnchanged", eachString(func(s string) string {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return fmt.Sprint(f)
		}
		return s
	})},

	{"treats an empty string as nil", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.Null = v.Null || v.Kind == resp.BulkString && v.Str == ""
		return honest(v)
	})},
	{"treats nil as an empty string", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.Null = false
		return honest(v)
	})},
	{"treats an empty list as nil", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.Null = v.Null || v.Kind == resp.Array && len(v.List) == 0
		return honest(v)
	})},
	{"ends a list at a nil", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		if i := slices.IndexFunc(v.List, func(e resp.Value) bool { return e.Null }); i >= 0 {
			v.List = v.List[:i]
		}
		return honest(v)
	})},
	{"flattens lists", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		var flat []resp.Value
		for _, e := range v.List {
			if e.Kind == resp.Array && !e.Null {
				flat = append(flat, e.List...)
			} else {
				flat = append(flat, e)
			}
		}
		v.List = flat
		return honest(v)
	})},
	{"makes integers of strings of digits", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		if n, err := strconv.ParseInt(v.Str, 10, 64); err == nil && v.Kind == resp.BulkString {
			return driver.Int(n), nil
		}
		return honest(v)
	})},
	{"formats integers as floats", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		if v.Kind == resp.Integer {
			return driver.Str(fmt.Sprint(float64(v.Int))), nil
		}
		return honest(v)
	})},
	{"has integers of 32 bits", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.Int = int64(int32(v.Int))
		return honest(v)
	})},
	{"treats a status as nil", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.Null = v.Null || v.Kind == resp.SimpleString
		return honest(v)
	})},
	{"cuts a reply at 64 KiB", "RepliesInFourShapes", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.Str = v.Str[:min(len(v.Str), 64<<10)]
		return honest(v)
	})},

	{"returns strings from its read buffer", "RepliesAreTheCallersOwn", func(c *client) {
		var buffer []byte
		honest := c.reply
		c.reply = func(v resp.Value) (driver.Reply, error) {
			buffer = buffer[:0]
			return honest(inBuffer(v, &buffer))
		}
	}},

	{"swallows an error inside a list", "ServerErrorsAreServerErrors", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.List = slices.Clone(v.List)
		for i, e := range v.List {
			v.List[i].Null = e.Null || e.Err() != nil
			if e.Err() != nil {
				v.List[i].Kind = resp.BulkString
			}
		}
		return honest(v)
	})},
	{"returns an error inside a list as a string", "ServerErrorsAreServerErrors", replies(func(v resp.Value, honest parser) (driver.Reply, error) {
		v.List = slices.Clone(v.List)
		for i, e := range v.List {
			if e.Err() != nil {
				v.List[i].Kind = resp.BulkString
			}
		}
		return honest(v)
	})},
	{"loses the code of an error", "ServerErrorsAreServerErrors", serverErrors(func(se *driver.ServerError) error {
		return &driver.ServerError{Code: "ERR", Message: se.Error()}
	})},
	{"loses the text of an error", "ServerErrorsAreServerErrors", serverErrors(func(se *driver.ServerError) error {
		return &driver.ServerError{Code: se.Code}
	})},
	{"reports a server's error as unknown", "ServerErrorsAreServerErrors", serverErrors(func(se *driver.ServerError) error {
		return errors.New(se.Error())
	})},
	{"reports a server's error as not sent", "ServerErrorsAreServerErrors", serverErrors(func(se *driver.ServerError) error {
		return driver.NotSent(se)
	})},

	{"loses the client's own error", "ClientErrorsStayReachable", serverErrors(func(se *driver.ServerError) error {
		return driver.ParseServerError(se.Error(), nil)
	})},

	{"remembers digests and never falls back", "FallsBackOnNoScript", func(c *client) {
		var loaded sync.Map
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			if _, known := loaded.LoadOrStore(s.SHA1(), true); known {
				return c.run(ctx, c.command("EVALSHA", s.SHA1(), keys, args))
			}
			return c.doEval(ctx, s, keys, args)
		}
	}},
	{"runs EVAL twice", "FallsBackOnNoScript", attempts(func(evalsha, eval attempt) (driver.Reply, error) {
		r, err := evalsha()
		if isNoScript(err) {
			_, _ = eval() // to load it
			r, err = eval()
		}
		return r, err
	})},
	{"falls back again and again", "FallsBackOnce", attempts(func(evalsha, eval attempt) (driver.Reply, error) {
		r, err := evalsha()
		for n := 0; isNoScript(err) && n < 10; n++ {
			r, err = eval()
		}
		return r, err
	})},
	{"sends the source every time", "SendsTheDigest", attempts(func(_, eval attempt) (driver.Reply, error) { return eval() })},
	{"tries EVALSHA_RO first", "SendsTheDigest", func(c *client) {
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			r, err := c.run(ctx, c.command("EVALSHA_RO", s.SHA1(), keys, args))
			if isServerError(err) { // it writes
				return c.doEval(ctx, s, keys, args)
			}
			return r, err
		}
	}},
	{"looks for the word NOSCRIPT", "OtherErrorsAreNotNoScript", func(c *client) {
		c.unknown = func(err error) bool { return err != nil && strings.Contains(err.Error(), "NOSCRIPT") }
	}},
	{"falls back on every error", "OtherErrorsAreNotNoScript", func(c *client) { c.unknown = isServerError }},

	{"retries a script after a lost reply", "SendsOnceWhenTheReplyIsLost", sends(func(ctx context.Context, send sender) (resp.Value, error) {
		v, err := send(ctx)
		if isUnknown(err) && ctx.Err() == nil {
			return send(ctx)
		}
		return v, err
	})},
	{"retries a script after a timeout", "SendsOnceWhenTheReplyIsLate", sends(func(ctx context.Context, send sender) (v resp.Value, err error) {
		for range 3 {
			attempt, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			v, err = send(attempt)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				break
			}
		}
		return v, err
	})},
	{"reads from a replica", "SendsToThePrimary", func(c *client) {
		replica := newClient(c.replica)
		c.get = func(_ *client, ctx context.Context, key string) (string, bool, error) { return replica.Get(ctx, key) }
	}},
	{"asks a replica first", "SendsToThePrimary", func(c *client) {
		replica := newClient(c.replica)
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			r, err := replica.Eval(ctx, s, keys, args)
			if se, ok := errors.AsType[*driver.ServerError](err); ok && se.Code == "READONLY" {
				return c.doEval(ctx, s, keys, args)
			}
			return r, err
		}
	}},

	{"takes a late reply for the next call's", "LateReplyIsDropped", func(c *client) {
		c.trip = func(cn *conn, ctx context.Context, command []string) (resp.Value, bool, error) {
			v, reusable, err := cn.roundTrip(ctx, command)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return v, cn.nc.SetDeadline(time.Time{}) == nil, err
			}
			return v, reusable, err
		}
	}},
	{"ignores the context", "DoneContextIsNotSent", func(c *client) {
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			return c.doEval(context.WithoutCancel(ctx), s, keys, args)
		}
	}},
	{"returns a done context's error bare", "DoneContextIsNotSent", func(c *client) {
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			if err := ctx.Err(); err != nil {
				return driver.Reply{}, err
			}
			return c.doEval(ctx, s, keys, args)
		}
	}},
	{"loses a done context's error", "DoneContextIsNotSent", func(c *client) {
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			if ctx.Err() != nil {
				return driver.Reply{}, driver.NotSent(errors.New("client: the call is over"))
			}
			return c.doEval(ctx, s, keys, args)
		}
	}},
	{"reports a refused dial as unknown", "RefusedDialIsNotSent", evalErrors(func(err error) error {
		if errors.Is(err, driver.ErrNotSent) {
			return errors.New(err.Error())
		}
		return err
	})},
	{"reports a broken connection as not sent", "CutConnectionIsUnknown", evalErrors(func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return driver.NotSent(err)
		}
		return err
	})},
	{"reports a broken connection as a server's error", "CutConnectionIsUnknown", evalErrors(func(err error) error {
		if isUnknown(err) {
			return driver.ParseServerError("ERR connection lost", err)
		}
		return err
	})},
	{"uses a broken connection again", "RecoversFromACut", func(c *client) {
		c.trip = func(cn *conn, ctx context.Context, command []string) (resp.Value, bool, error) {
			v, _, err := cn.roundTrip(ctx, command)
			return v, true, err
		}
	}},
	{"closes the client after an error", "RecoversFromACut", func(c *client) {
		var closed atomic.Bool
		sends(func(ctx context.Context, send sender) (resp.Value, error) {
			if closed.Load() {
				return resp.Value{}, driver.NotSent(net.ErrClosed)
			}
			v, err := send(ctx)
			if isUnknown(err) && !closed.Swap(true) {
				c.pool.close()
			}
			return v, err
		})(c)
	}},
	{"reports as not sent what is in its queue", "NotSentIsNeverSent", func(c *client) {
		c.send = func(c *client, ctx context.Context, command ...string) (resp.Value, error) {
			return queued(ctx, c, driver.NotSent, func() []string { return command })
		}
	}},
	{"reports a timeout as not sent", "DeadlineEndsTheCall", evalErrors(func(err error) error {
		if errors.Is(err, context.DeadlineExceeded) {
			return driver.NotSent(err)
		}
		return err
	})},
	{"reports a deadline as the network's timeout", "DeadlineEndsTheCall", evalErrors(func(err error) error {
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrNotSent) {
			return os.ErrDeadlineExceeded
		}
		return err
	})},
	{"leaves its deadline on the connection", "DeadlineIsOfItsCall", func(c *client) {
		c.trip = func(cn *conn, ctx context.Context, command []string) (resp.Value, bool, error) {
			if deadline, ok := ctx.Deadline(); ok {
				_ = cn.nc.SetDeadline(deadline)
			}
			return cn.roundTrip(context.WithoutCancel(ctx), command)
		}
	}},
	{"reports a cancelled call as not sent", "CancelledCallIsUnknown", evalErrors(func(err error) error {
		if errors.Is(err, context.Canceled) {
			return driver.NotSent(err)
		}
		return err
	})},
	{"keeps the argument slice", "ArgsAreNotKept", func(c *client) {
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			call, cancel := c.within(ctx)
			defer cancel()
			v, err := queued(call, c, func(err error) error { return err }, func() []string {
				return command("EVAL", s.Source(), keys, args)
			})
			if err != nil {
				return driver.Reply{}, err
			}
			return c.reply(v)
		}
	}},
	{"appends to the keys that it was given", "ArgsAreNotKept", commands(func(name, script string, keys, args []string) []string {
		n := len(keys)
		all := append(keys, args...)
		return command(name, script, all[:n], all[n:])
	})},
	{"has one write buffer for all calls", "ConcurrentCalls", func(c *client) {
		var buffer []byte
		c.trip = func(cn *conn, ctx context.Context, command []string) (resp.Value, bool, error) {
			cn.buf = buffer
			defer func() { buffer = cn.buf }()
			return cn.roundTrip(ctx, command)
		}
	}},
	{"gives a reply to whoever reads first", "ConcurrentCalls", func(c *client) {
		var write, read sync.Mutex
		var cn *conn
		c.send = func(c *client, ctx context.Context, command ...string) (resp.Value, error) {
			write.Lock()
			if cn == nil {
				var err error
				if cn, err = c.pool.take(ctx); err != nil {
					write.Unlock()
					return resp.Value{}, driver.NotSent(err)
				}
			}
			_, err := cn.nc.Write(resp.AppendCommand(nil, command...))
			write.Unlock()
			if err != nil {
				return resp.Value{}, err
			}
			read.Lock()
			defer read.Unlock()
			return resp.ReadValue(cn.r)
		}
	}},

	{"closes the client that it was given", "HandedInClientStaysOpen", func(c *client) { c.closes = true }},
	{"leaks a goroutine per call", "LeaksNoGoroutine", sends(func(ctx context.Context, send sender) (resp.Value, error) {
		done := make(chan error)
		go func() { done <- ctx.Err() }()
		return send(ctx)
	})},
	{"keeps a connection after an error reply", "LeaksNoConnection", func(c *client) {
		c.send = func(c *client, ctx context.Context, command ...string) (resp.Value, error) {
			if err := ctx.Err(); err != nil {
				return resp.Value{}, driver.NotSent(err)
			}
			cn, err := c.pool.take(ctx)
			if err != nil {
				return resp.Value{}, driver.NotSent(err)
			}
			v, reusable, err := c.trip(cn, ctx, command)
			if v.Err() != nil && !isNoScript(driver.ParseServerError(v.Str, nil)) {
				return v, nil // an early return
			}
			c.pool.give(cn, reusable)
			return v, driver.CallError(ctx, err)
		}
	}},
	{"keeps its place in the pool after a timeout", "LeaksNoConnection", func(c *client) {
		c.send = func(c *client, ctx context.Context, command ...string) (resp.Value, error) {
			v, err := c.doSend(ctx, command...)
			if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, driver.ErrNotSent) {
				c.pool.places <- struct{}{}
			}
			return v, err
		}
	}},
	{"leaves a connection open for each call", "LeaksNoConnection", func(c *client) {
		var mu sync.Mutex
		var open []net.Conn // a connection that nobody holds is closed in time
		c.send = func(c *client, ctx context.Context, command ...string) (resp.Value, error) {
			nc, err := c.pool.dial(ctx)
			if err != nil {
				return resp.Value{}, driver.NotSent(err)
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			v, _, err := c.trip(&conn{nc: nc, r: bufio.NewReader(nc)}, ctx, command)
			return v, err
		}
	}},

	{"finds a value where there is none", "GetReturnsTheValue", func(c *client) {
		c.get = func(c *client, ctx context.Context, key string) (string, bool, error) {
			value, _, err := c.doGet(ctx, key)
			return value, err == nil, err
		}
	}},
	{"finds no value that is empty", "GetReturnsTheValue", func(c *client) {
		c.get = func(c *client, ctx context.Context, key string) (string, bool, error) {
			value, _, err := c.doGet(ctx, key)
			return value, value != "", err
		}
	}},
	{"returns values from its read buffer", "GetReturnsAStringOfItsOwn", func(c *client) {
		buffer := make([]byte, 0, 2<<20)
		c.get = func(c *client, ctx context.Context, key string) (string, bool, error) {
			value, ok, err := c.doGet(ctx, key)
			buffer = append(buffer[:0], value...)
			return unsafe.String(unsafe.SliceData(buffer), len(buffer)), ok, err
		}
	}},
	{"finds no value where GET fails", "GetSortsItsErrors", func(c *client) {
		c.get = func(c *client, ctx context.Context, key string) (string, bool, error) {
			value, ok, err := c.doGet(ctx, key)
			if isServerError(err) {
				err = nil
			}
			return value, ok, err
		}
	}},
	{"sends GET when the context is done", "GetSortsItsErrors", func(c *client) {
		c.get = func(c *client, ctx context.Context, key string) (string, bool, error) {
			return c.doGet(context.WithoutCancel(ctx), key)
		}
	}},

	{"finds bytes where there are none", "GetBytesReturnsTheValue", func(c *client) {
		c.getBytes = func(c *client, ctx context.Context, key string) ([]byte, bool, error) {
			value, _, err := c.doGetBytes(ctx, key)
			return value, err == nil, err
		}
	}},
	{"returns bytes that it keeps", "GetBytesAreTheCallers", func(c *client) {
		var mu sync.Mutex
		kept := map[string][]byte{}
		c.getBytes = func(c *client, ctx context.Context, key string) ([]byte, bool, error) {
			value, ok, err := c.doGetBytes(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if len(kept[key]) != len(value) {
				kept[key] = value
			}
			return kept[key], ok, err
		}
	}},
	{"returns bytes of its read buffer", "GetBytesAreTheCallers", func(c *client) {
		buffer := make([]byte, 0, 2<<20)
		c.getBytes = func(c *client, ctx context.Context, key string) ([]byte, bool, error) {
			value, ok, err := c.doGetBytes(ctx, key)
			buffer = append(buffer[:0], value...)
			return buffer, ok, err
		}
	}},
	{"sends GET for bytes when the context is done", "GetBytesSortsItsErrors", func(c *client) {
		c.getBytes = func(c *client, ctx context.Context, key string) ([]byte, bool, error) {
			return c.doGetBytes(context.WithoutCancel(ctx), key)
		}
	}},

	{"loses Get by Bound", "BoundKeepsTheAbilities", bounds(func(b *client) driver.Evaler {
		return struct {
			driver.Evaler
			driver.Pinger
		}{b, b}
	})},
	{"loses Ping by Bound", "BoundKeepsTheAbilities", bounds(func(b *client) driver.Evaler {
		return struct {
			driver.Evaler
			driver.Getter
		}{b, b}
	})},
	{"bounds nothing", "BoundEndsTheCall", bounds(func(b *client) driver.Evaler {
		b.bound = 0
		return b
	})},
	{"bounds Eval alone", "BoundEndsTheCall", bounds(func(b *client) driver.Evaler {
		b.get = func(c *client, ctx context.Context, key string) (string, bool, error) {
			r, err := c.run(ctx, []string{"GET", key})
			value, ok := r.Str()
			return value, ok, err
		}
		return b
	})},
	{"starts the clock when it has a connection", "BoundEndsTheCall", func(c *client) {
		c.pool = newPool(c.addr, 1)
		bounds(func(b *client) driver.Evaler {
			d := b.bound
			b.bound = 0
			b.trip = func(cn *conn, ctx context.Context, command []string) (resp.Value, bool, error) {
				ctx, cancel := context.WithTimeout(ctx, d)
				defer cancel()
				return cn.roundTrip(ctx, command)
			}
			return b
		})(c)
	}},
	{"has one deadline for all bounded calls", "BoundIsOfEachCall", bounds(func(b *client) driver.Evaler {
		deadline := time.Now().Add(b.bound)
		b.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			ctx, cancel := context.WithDeadline(ctx, deadline)
			defer cancel()
			return c.doEval(ctx, s, keys, args)
		}
		return b
	})},
	{"sets the timeout of its client by Bound", "BoundLeavesTheOthers", func(c *client) {
		var d atomic.Int64 // of all that share the client
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			shared := *c
			shared.bound = time.Duration(d.Load())
			return shared.doEval(ctx, s, keys, args)
		}
		bounds(func(b *client) driver.Evaler {
			d.Store(int64(b.bound))
			return b
		})(c)
	}},
	{"puts the bound in place of the deadline", "BoundHeedsTheDeadline", bounds(func(b *client) driver.Evaler {
		b.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			return c.doEval(context.WithoutCancel(ctx), s, keys, args)
		}
		return b
	})},

	{"answers a ping by itself", "PingTellsWhetherTheServerAnswers", func(c *client) {
		c.ping = func(*client, context.Context) error { return nil }
	}},
	{"pings by taking a connection", "PingTellsWhetherTheServerAnswers", func(c *client) {
		c.ping = func(c *client, ctx context.Context) error {
			cn, err := c.pool.take(ctx)
			if err == nil {
				c.pool.give(cn, true)
			}
			return err
		}
	}},
	{"answers nil when the server is down", "StorePings", func(c *client) {
		c.ping = func(*client, context.Context) error { return nil }
		evalErrors(func(err error) error {
			if isServerError(err) {
				return err
			}
			return nil
		})(c)
	}},

	{"hears of no channel but the first", "SubscriptionHearsItsChannels", func(c *client) {
		var first sync.Map
		hearing(func(e *ears) {
			honest := e.hear
			e.hear = func(s *subscription, channel string) {
				if one, _ := first.LoadOrStore(s, channel); one == channel {
					honest(s, channel)
				}
			}
		})(c)
	}},
	{"does not wait until a channel is confirmed", "SubscriptionHearsItsChannels", hearing(func(e *ears) {
		honest := e.add
		e.add = func(s *subscription, _ context.Context, channel string) error {
			s.wg.Go(func() {
				select {
				case <-time.After(100 * time.Millisecond): // as when the server is slow
					honest(s, s.ctx, channel)
				case <-s.ctx.Done():
				}
			})
			return nil
		}
	})},
	{"keeps channels that were removed", "SubscriptionHearsItsChannels", hearing(func(e *ears) {
		e.remove = func(*subscription, string) {}
	})},
	{"takes a connection for each channel", "SubscriptionsShareAConnection", func(c *client) {
		hearing(func(e *ears) {
			e.add = func(s *subscription, ctx context.Context, channel string) error {
				if s.ctx.Err() != nil {
					return errClosed
				}
				sub, err := newClient(c.addr).Subscribe(s.notify)
				if err != nil {
					return err
				}
				context.AfterFunc(s.ctx, func() { sub.Close() })
				return sub.Add(ctx, channel)
			}
		})(c)
	}},
	{"leaves the connection open when closed", "SubscriptionsShareAConnection", hearing(func(e *ears) {
		e.close = func(*subscription) {}
	})},
	{"does not connect again", "SubscriptionReconnects", hearing(func(e *ears) {
		e.lost = func(*subscription) {}
	})},
	{"forgets its channels when it connects again", "SubscriptionReconnects", hearing(func(e *ears) {
		honest := e.lost
		e.lost = func(s *subscription) {
			s.mu.Lock()
			channels := s.channels
			s.channels = map[string]chan struct{}{}
			s.mu.Unlock()
			honest(s)
			for channel := range channels {
				s.notify(channel)
			}
		}
	})},
	{"connects again and says nothing", "SubscriptionReconnects", hearing(func(e *ears) {
		honest := e.lost
		e.lost = func(s *subscription) {
			s.mu.Lock()
			for channel := range s.channels {
				s.channels[channel] = make(chan struct{}) // as if it were new
			}
			s.mu.Unlock()
			honest(s)
		}
	})},
	{"waits for ever until a channel is confirmed", "AddEndsByItsDeadline", hearing(func(e *ears) {
		honest := e.add
		e.add = func(s *subscription, ctx context.Context, channel string) error {
			return honest(s, context.WithoutCancel(ctx), channel)
		}
	})},

	{"loses each third message", "TrackHearsWhatChanges", tracks(func(ctx context.Context, t *tracked) context.Context {
		honest, n := t.changed, 0
		t.changed = func(names []string) {
			if n++; n%3 != 0 {
				honest(names)
			}
		}
		return ctx
	})},
	{"hears of names in UTF-8 only", "TrackHearsWhatChanges", tracks(func(ctx context.Context, t *tracked) context.Context {
		honest := t.changed
		t.changed = func(names []string) { honest([]string{strings.ToValidUTF8(names[0], "?")}) }
		return ctx
	})},
	{"tracks all names there are", "TrackHearsWhatChanges", tracks(func(ctx context.Context, t *tracked) context.Context {
		t.prefix = ""
		return ctx
	})},
	{"does not tell that its connection was cut", "TrackTellsOfACut", tracks(func(ctx context.Context, t *tracked) context.Context {
		t.lost = func() {}
		return ctx
	})},
	{"never asks whether the server is there", "TrackTellsOfAHang", tracks(func(ctx context.Context, t *tracked) context.Context {
		t.silence = 0
		return ctx
	})},
	{"tracks whatever the deadline", "TrackEndsByItsDeadline", tracks(func(ctx context.Context, _ *tracked) context.Context {
		return context.WithoutCancel(ctx)
	})},
	{"hears of changes after Close", "TrackCloses", func(c *client) {
		honest := c.track
		c.track = func(c *client, ctx context.Context, t *tracked) (io.Closer, error) {
			_, err := honest(c, ctx, t)
			return unclosed{}, err
		}
	}},
}

// The rest makes faults.

func commands(f func(name, script string, keys, args []string) []string) func(*client) {
	return func(c *client) { c.command = f }
}

// eachString changes all keys and arguments.
func eachString(change func(string) string) func(*client) {
	return commands(func(name, script string, keys, args []string) []string {
		return command(name, script, mapped(keys, change), mapped(args, change))
	})
}

func mapped(in []string, change func(string) string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = change(s)
	}
	return out
}

type parser func(resp.Value) (driver.Reply, error)

// replies changes how replies and elements of lists are converted.
func replies(change func(v resp.Value, honest parser) (driver.Reply, error)) func(*client) {
	return func(c *client) {
		c.reply = func(v resp.Value) (driver.Reply, error) {
			return change(v, func(v resp.Value) (driver.Reply, error) { return convert(v, c.reply) })
		}
	}
}

// inBuffer returns v with its strings in the buffer.
func inBuffer(v resp.Value, buffer *[]byte) resp.Value {
	start := len(*buffer)
	*buffer = append(*buffer, v.Str...)
	v.Str = unsafe.String(unsafe.SliceData((*buffer)[start:]), len(*buffer)-start)
	v.List = slices.Clone(v.List)
	for i, e := range v.List {
		v.List[i] = inBuffer(e, buffer)
	}
	return v
}

// evalErrors changes what Eval reports.
func evalErrors(change func(error) error) func(*client) {
	return func(c *client) {
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			r, err := c.doEval(ctx, s, keys, args)
			if err != nil {
				err = change(err)
			}
			return r, err
		}
	}
}

func serverErrors(change func(*driver.ServerError) error) func(*client) {
	return evalErrors(func(err error) error {
		if se, ok := errors.AsType[*driver.ServerError](err); ok {
			return change(se)
		}
		return err
	})
}

func isServerError(err error) bool {
	_, ok := errors.AsType[*driver.ServerError](err)
	return ok
}

func isUnknown(err error) bool {
	return err != nil && !isServerError(err) && !errors.Is(err, driver.ErrNotSent)
}

type attempt func() (driver.Reply, error)

// attempts changes how EVALSHA and EVAL are used.
func attempts(f func(evalsha, eval attempt) (driver.Reply, error)) func(*client) {
	return func(c *client) {
		c.eval = func(c *client, ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
			return f(
				func() (driver.Reply, error) { return c.run(ctx, c.command("EVALSHA", s.SHA1(), keys, args)) },
				func() (driver.Reply, error) { return c.run(ctx, c.command("EVAL", s.Source(), keys, args)) },
			)
		}
	}
}

type sender func(context.Context) (resp.Value, error)

// sends changes how a command is sent.
func sends(f func(ctx context.Context, send sender) (resp.Value, error)) func(*client) {
	return func(c *client) {
		c.send = func(c *client, ctx context.Context, command ...string) (resp.Value, error) {
			return f(ctx, func(ctx context.Context) (resp.Value, error) { return c.doSend(ctx, command...) })
		}
	}
}

// queued sends a command from a goroutine that goes on when ctx ends. left makes
// the error of a call that ended while it waited for a connection.
func queued(ctx context.Context, c *client, left func(error) error, command func() []string) (resp.Value, error) {
	if err := ctx.Err(); err != nil {
		return resp.Value{}, driver.NotSent(err)
	}
	type result struct {
		v   resp.Value
		err error
	}
	done := make(chan result, 1)
	var began atomic.Bool
	go func() {
		ctx := context.WithoutCancel(ctx)
		cn, err := c.pool.take(ctx)
		if err != nil {
			done <- result{err: driver.NotSent(err)}
			return
		}
		began.Store(true)
		v, reusable, err := c.trip(cn, ctx, command())
		c.pool.give(cn, reusable)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	if began.Load() {
		return resp.Value{}, ctx.Err()
	}
	return resp.Value{}, left(ctx.Err())
}

// bounds changes what Bound returns: b is a client with steps of its own.
func bounds(f func(b *client) driver.Evaler) func(*client) {
	return func(c *client) {
		c.limit = func(c *client, d time.Duration) driver.Evaler {
			b, steps := *c, *c.steps
			b.bound, b.steps = d, &steps
			return f(&b)
		}
	}
}
