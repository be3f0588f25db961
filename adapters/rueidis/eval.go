package rueidis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// evaler runs scripts through client. When bound is not nil, its calls end in
// that time.
type evaler struct {
	client Client
	bound  *bound
}

var errKeys = errors.New("rueidis: the keys of a script must share a hash tag, as in a{x} and b{x}")

// Eval implements [driver.Evaler].
func (e evaler) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	if !shareTag(keys) {
		// The builder of a cluster client panics where slots differ.
		return driver.Reply{}, driver.NotSent(errKeys)
	}
	// One bound for both attempts.
	call := e.bound.context(ctx)
	m, err := e.eval(ctx, call, "EVALSHA", s.SHA1(), keys, args)
	if se, ok := errors.AsType[*driver.ServerError](err); ok && se.Code == "NOSCRIPT" {
		// The server does not know the digest, so it has run nothing.
		m, err = e.eval(ctx, call, "EVAL", s.Source(), keys, args)
	}
	if err != nil {
		return driver.Reply{}, err
	}
	return reply(m)
}

// eval sends one command and returns its reply.
func (e evaler) eval(ctx, call context.Context, name, script string, keys, args []string) (rueidis.RedisMessage, error) {
	return e.do(ctx, call, func() rueidis.Completed {
		return e.client.B().Arbitrary(name, script, strconv.Itoa(len(keys))).Keys(keys...).Args(args...).Build()
	})
}

// do sends the command that build makes, unless ctx is done. ctx is the caller's
// context, call the one to send with. A command is an Arbitrary without marks:
// the client neither repeats it nor sends it to a replica. It must not be used
// twice, because the client recycles it.
func (e evaler) do(ctx, call context.Context, build func() rueidis.Completed) (m rueidis.RedisMessage, err error) {
	if err := ctx.Err(); err != nil {
		return m, driver.NotSent(err)
	}
	r := e.bound.do(call, e.client, build())
	if err := r.NonRedisError(); err != nil {
		return m, callError(ctx, call, err)
	}
	m, err = r.ToMessage()
	if err != nil && !m.IsNil() {
		return m, serverError(m, err)
	}
	return m, nil
}

// shareTag reports whether all keys have the same hash tag, and with it the same
// slot. A key without a tag is its own.
func shareTag(keys []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return hashTag(key) != hashTag(keys[0]) })
}

func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
