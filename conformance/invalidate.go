package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/internal/protocol"
)

// Cases of G7: what Invalidate says.

func isInvalidate(command []string) bool {
	return MatchScript(protocol.Invalidate.SHA1(), protocol.Invalidate.Source())(command)
}

var invalidateCases = []testCase{
	{
		name: "G7InvalidateManyKeys", cache: true,
		rule: "Invalidate must delete every key that it was given, of all types, and none other.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			var keys []string
			for i := range 100 {
				key := fmt.Sprint("k", i)
				keys = append(keys, key)
				e.do("SET", e.value(key), "v")
				e.do("SET", e.lease(key), "l")
			}
			e.do("SET", e.value("other"), "v")
			e.do("DEL", e.value("k7"))
			e.do("RPUSH", e.value("k7"), "x")
			e.mustInvalidate(c)
			e.mustInvalidate(c, keys...)
			for _, key := range keys {
				if e.exists(e.value(key)) || e.exists(e.lease(key)) {
					e.Errorf("value or lease of %q are left", key)
				}
			}
			e.wantStored("other", "v")
			if n := c.Stats().Invalidated; n != 100 {
				e.Errorf("Stats: %d keys invalidated; want 100", n)
			}
		},
	},
	{
		name: "G7ServerDown", cache: true,
		rule: "Invalidate must not return nil when the server did not do it, and the error must name the keys.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			e.mustRead(c, "a", loaderOf("v", nil))
			p.Down()
			err := c.Invalidate(e.deadline(300*time.Millisecond), "a", "b")
			var ie *leasecache.InvalidateError
			if !errors.As(err, &ie) || len(ie.Keys) != 2 || ie.Keys[0] != "a" || ie.Keys[1] != "b" {
				e.Errorf("Invalidate returned %v; want an InvalidateError with both keys", err)
			}
			if !errors.Is(err, leasecache.ErrUnavailable) {
				e.Errorf("Invalidate returned %v; want ErrUnavailable", err)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("Invalidate returned %v; want the context's error too", err)
			}
			e.wantStored("a", "v")
		},
	},
	{
		name: "G7HungServer", cache: true,
		rule: "Invalidate must end by its context when the server hangs, with an error that satisfies errors.Is with the context's.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			e.mustRead(c, "a", loaderOf("v", nil))
			p.On(isInvalidate, -1, Hang)
			start := time.Now()
			err := c.Invalidate(e.deadline(300*time.Millisecond), "a")
			if !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("Invalidate returned %v; want context.DeadlineExceeded", err)
			}
			if took := time.Since(start); took > patience/2 {
				e.Errorf("Invalidate took %v, with a deadline of 300ms", took)
			}
			e.wantStored("a", "v")
		},
	},
	{
		name: "G7OneKeyFails", cache: true,
		rule: "When one key of many could not be invalidated, the error must name that one, and the others must be gone.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			for _, key := range []string{"a", "b", "c"} {
				e.do("SET", e.value(key), "v")
			}
			p.On(func(command []string) bool { return isInvalidate(command) && command[3] == e.value("b") }, -1, CutBefore)
			// Time enough for the others: with a client that sends them through the same
			// connection, they are cut too.
			err := c.Invalidate(e.deadline(2*time.Second), "a", "b", "c")
			var ie *leasecache.InvalidateError
			if !errors.As(err, &ie) || len(ie.Keys) != 1 || ie.Keys[0] != "b" {
				e.Errorf("Invalidate returned %v; want an InvalidateError with b alone", err)
			}
			e.wantNotStored("a")
			e.wantStored("b", "v")
			e.wantNotStored("c")
		},
	},
	{
		name: "G7LostReply", cache: true,
		rule: "Invalidate must try again when the reply was lost, and then return nil.",
		run: func(e *env) {
			p := e.proxy()
			c := e.cacheOn(e.driverOn(p), cacheOptions)
			e.do("SET", e.value("a"), "v")
			rule := p.On(isInvalidate, 5, CutBefore) // more than one round of attempts
			e.mustInvalidate(c, "a")
			if rule.Hits() != 5 {
				e.Errorf("%d attempts were cut; want 5", rule.Hits())
			}
			e.wantNotStored("a")
		},
	},
	{
		name: "InvalidateWithABadKey", cache: true,
		rule: "Invalidate of a key that cannot be one must say which, and invalidate nothing.",
		run: func(e *env) {
			c := e.cache(cacheOptions)
			e.do("SET", e.value("a"), "v")
			for _, bad := range []string{"", "}x"} {
				if err := c.Invalidate(e.ctx, "a", bad); !errors.Is(err, leasecache.ErrKey) {
					e.Errorf("Invalidate of %q returned %v; want ErrKey", bad, err)
				}
			}
			e.wantStored("a", "v")
		},
	},
}
