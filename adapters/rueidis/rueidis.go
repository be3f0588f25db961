// Package rueidis lets leasecache use the client of github.com/redis/rueidis
// that a service already has. The two packages have the same name, so one of
// them is imported under another:
//
//	import lcrueidis "github.com/leasecache/leasecache/adapters/rueidis"
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//	...
//	products, err := leasecache.New[Product](lcrueidis.New(client), leasecache.Options{
//		Prefix: "catalog:",
//		TTL:    10 * time.Minute,
//	})
//
// Or open a client by DSN, with a blank import of this package:
//
//	e, err := driver.Open("rueidis", "redis://user:password@localhost:6379/0?protocol=3")
//
// The schemes are redis, rediss (TLS) and unix (unix:///path?db=0); valkey and
// valkeys mean the same as redis and rediss. A server that is part of a cluster
// is recognized. The parameters are
//
//	addr=host:port      further hosts of a cluster, or further sentinels
//	client_name=text    the name of the connections
//	dial_timeout=5s     for a new connection
//	master_set=name     the hosts are sentinels, and know the primary by this name
//	protocol=2          the version of RESP, 2 or 3; default 3 where the server has it
//	skip_verify=true    do not verify the server's certificate; with TLS only
//	write_timeout=10s   after it a connection whose server is silent is closed
//
// Open connects, and fails when it cannot.
//
// # Clients
//
// [New] takes every [Client]. What it can do beyond scripts depends on the type:
//
//	                                 plain GET for hits    ends calls in time by itself
//	rueidis.Client, of any topology  from primaries        yes
//	any other                        scripts only          no
//
// A wrapper that has all methods of a rueidis.Client, such as those of
// rueidishook and rueidisotel, is one, and has batches, by DoMulti. A ping works with every client. Wake-ups
// need the method Receive, and a goroutine for each key that is waited for. They
// go over the connections that the client has anyway; with RESP2 it keeps one
// more to each primary for them. A near tier takes a dedicated connection to each
// primary for as long as its cache is open, and needs RESP3.
//
// # Behaviour
//
// Commands are sent at most once: none is marked as read-only or as retryable,
// the GET of a hit included, so the client's retries do not apply to them.
// Redirections of a cluster are followed, because the node that redirects has
// not run the command.
//
// For the same reason a SendToReplicas function that goes by Completed.IsReadOnly
// leaves these commands on the primary. See Limits for others.
//
// The client sends the commands of many callers through few connections, and
// answers come in order. When a call that has a connection for itself runs out
// of time, the client closes that connection, and calls that have joined it
// meanwhile fail too. With ClientOption.AlwaysPipelining it abandons that call
// alone. Clients that are opened by DSN have it set.
//
// When the server hangs, what was sent stays in the client's queues, and a
// client whose queue is full waits for room whatever the context says. So when
// more than 128 bounded calls of a cache are under way, and for a minute after
// one ran out of time, further ones are made in a goroutine of their own, which
// is left behind when the time is over.
//
// With Sentinel, set SentinelOption.TopologyRefreshInterval: without it the client
// learns of a failover by one message, and when that is lost it stays with the
// primary that was deposed. Clients that are opened by DSN have it set to 5 s.
//
// # Limits
//
// Nothing in a client tells where its commands go, so New cannot refuse a client
// that must not be used: one with ReplicaOnly, or with a SendToReplicas function
// that returns true for a command that is not read-only. A replica does not know
// the leases, and answers with values that were invalidated.
//
// The client panics, in a goroutine of its own, which ends the process, when a
// connection breaks on which the server has spoken first. A server at its
// maxclients does that, so leave it room.
//
// A client that was closed connects again, and stays so, when a call's context
// ends at the very moment at which it is handed the call. So close the caches
// before the client.
//
// The first 128 calls on a server that hangs can wait longer than their bound
// when commands of the service fill the client's queues, or while the client
// connects for a command of the service whose context has no deadline:
// ClientOption.Dialer.Timeout and ConnWriteTimeout end these waits, after 5 s and
// 10 s by default.
package rueidis

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// Client is the part of a rueidis client that this package needs: every
// rueidis.Client has it, with hooks or without, and mocks and wrappers can.
//
// A Client must be safe for concurrent use, and must send what is not marked as
// read-only to the primary, and not a second time.
type Client interface {
	B() rueidis.Builder
	Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult
}

// New returns an Evaler over c, to hand to leasecache.New. It has no error
// result: when c is nil, or a rueidis.DedicatedClient, which is one connection,
// leasecache.New reports it.
//
// New does not connect, and c is never closed. The Evaler is safe for concurrent
// use.
func New(c Client) driver.Evaler {
	if err := validate(c); err != nil {
		return driver.Invalid(err)
	}
	if _, ok := c.(rueidis.Client); ok {
		return full{evaler{client: c}}
	}
	return evaler{client: c}
}

func validate(c Client) error {
	if isNil(c) {
		return errors.New("rueidis: client is nil: hand over the rueidis.Client that the service uses")
	}
	if _, ok := c.(rueidis.DedicatedClient); ok {
		return fmt.Errorf("rueidis: a %T is one connection, which cannot be shared: hand over the client that it was made from", c)
	}
	return nil
}

// isNil reports whether c is nil, or holds a pointer or a function that is.
func isNil(c Client) bool {
	v := reflect.ValueOf(c)
	return c == nil || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

func init() { driver.Register("rueidis", registered{}) }

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
