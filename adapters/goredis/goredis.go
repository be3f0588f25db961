// Package goredis lets leasecache use the client of github.com/redis/go-redis/v9
// that a service already has.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	products, err := leasecache.New[Product](goredis.New(rdb), leasecache.Options{
//		Prefix: "catalog:",
//		TTL:    10 * time.Minute,
//	})
//
// Or open a client by DSN, with a blank import of this package:
//
//	e, err := driver.Open("goredis", "redis://:password@localhost:6379/0?pool_size=20")
//
// The forms of a DSN are those of redis.ParseURL (schemes redis, rediss, unix),
// redis.ParseClusterURL (redis+cluster, rediss+cluster) and
// redis.ParseFailoverURL (redis+sentinel, rediss+sentinel); a ring is opened by
// redis+ring or rediss+ring, with further shards as parameters addr=host:port.
// A host is required, and parameters that send reads to replicas are refused.
//
// # Clients
//
// [New] takes every [Client]. What it can do beyond scripts depends on the type:
//
//	                        plain GET for hits    ends calls in time by itself
//	*redis.Client           yes                   always, see Behaviour
//	*redis.ClusterClient    from primaries        with ContextTimeoutEnabled
//	*redis.Ring             yes                   with ContextTimeoutEnabled
//	any other               scripts only          no
//
// Batches are pipelines, where there is the plain GET.
//
// A ping works with every client. Wake-ups work with all but "any other", by a
// connection beside the pool to each primary, while reads wait and for up to ten
// seconds after. A near tier does too, but with a cluster that has a ClusterSlots
// function; it takes a client of its own with the options of yours for each
// primary, with one connection, for as long as its cache is open. Hooks do not see it.
//
// "From primaries" means that none of ReadOnly, RouteByLatency and RouteRandomly is
// set: leasecache must not read from a replica, so with one of them, and with
// clients whose routing cannot be known, hits are answered by a script, which
// go-redis always sends to the primary. A cluster with one of them, or with a
// ClusterSlots function (redis.NewFailoverClusterClient sets one), does not end
// its calls in time either. Then package leasecache spends a goroutine per call.
// Everything works either way; the table is about cost.
//
// # Behaviour
//
// Commands are sent at most once: they carry go-redis's NoRetry, so MaxRetries
// does not apply to them. Redirections of a cluster are followed, because the
// node that redirects has not run the command.
//
// A *redis.ClusterClient learns of a failover when a node redirects it, or up to
// ClusterStateReloadInterval later, a minute by default. So after a call that
// got no reply this package has it reload its state, in the background.
//
// go-redis ignores a context's deadline while a command is on the wire unless
// Options.ContextTimeoutEnabled is set, and ignores cancelling always. Set it,
// and nothing else is needed. A *redis.Client without it gets one hook from this
// package when leasecache starts to use it. That hook sends this package's
// commands, and no others, through a clone of the client that shares its pool
// and has the option set. Options and other commands stay as they are. Hooks
// that are added after it do not see this package's commands; those that are
// there before do, so instrument a client first. A cluster or a ring without
// the option is used as it is.
//
// A client whose ReadTimeout or WriteTimeout is -2 never sets deadlines on its
// connections, so its calls do not end by themselves.
//
// # Limits
//
// A client from redis.NewFailoverClient with ReplicaOnly must not be used: it
// talks to replicas only, which is not visible in the client, so New cannot
// refuse it. Opening such a DSN is refused.
//
// A *redis.Ring moves a key to another shard while the key's own is down. An
// invalidation that happens meanwhile does not reach the value on the first
// one, which is served again when that shard is back. The guarantees of
// leasecache hold on a ring only while its set of live shards stays the same.
//
// # Version
//
// go-redis v9.19.0 or later is required, because earlier versions know no
// NoRetry and run a script up to four times when its reply is lost. They would
// still compile. This module requires the version that it is tested with.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver"
)

// Client is the part of a go-redis client that this package needs: every client
// of go-redis has it, with hooks or without, and mocks and wrappers can.
//
// A Client must be safe for concurrent use, and must not send a command again
// whose NoRetry method reports true. The commands handed to Process are of types
// of this package that embed *redis.Cmd or *redis.StringCmd: a mock sets the
// reply by the SetVal method.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// New returns an Evaler over c, to hand to leasecache.New. It has no error
// result: when c is nil, or of a type that cannot run commands by itself
// (a pipeline, a transaction, a single connection), leasecache.New reports it.
//
// New does not connect, and c is never closed. The Evaler is safe for concurrent
// use.
func New(c Client) driver.Evaler {
	if err := validate(c); err != nil {
		return driver.Invalid(err)
	}
	e := evaler{client: c}
	switch get, bound := readsPrimary(c), endsByDeadline(c); {
	case get && bound:
		return getBounder{e}
	case get:
		return getter{e}
	case bound:
		return bounder{e}
	}
	return e
}

func validate(c Client) error {
	if isNil(c) {
		return errors.New("goredis: client is nil: hand over the *redis.Client, *redis.ClusterClient or *redis.Ring that the service uses")
	}
	switch c.(type) {
	case redis.Pipeliner, *redis.Tx, *redis.Conn:
		// A pipeline runs nothing before Exec; the others are one connection
		// that is not to be shared and does not reconnect.
		return fmt.Errorf("goredis: a %T cannot be shared by calls that need their reply: hand over the client that it was made from", c)
	}
	return nil
}

// isNil reports whether c is nil, or holds a pointer or a function that is.
func isNil(c Client) bool {
	v := reflect.ValueOf(c)
	return c == nil || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

func init() { driver.Register("goredis", registered{}) }

// registered is the driver's entry in the registry.
type registered struct{}

// Adopt implements [driver.Adopter].
func (registered) Adopt(client any) (driver.Evaler, bool, error) {
	c, ok := client.(Client)
	if !ok {
		return nil, false, nil
	}
	return New(c), true, nil
}
