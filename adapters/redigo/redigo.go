// Package redigo lets leasecache use the connection pool of
// github.com/gomodule/redigo that a service already has.
//
//	pool := &redis.Pool{
//		DialContext: func(ctx context.Context) (redis.Conn, error) {
//			return redis.DialContext(ctx, "tcp", "localhost:6379", redis.DialWriteTimeout(5*time.Second))
//		},
//		MaxIdle: 64, MaxActive: 64, Wait: true,
//	}
//	products, err := leasecache.New[Product](redigo.New(pool), leasecache.Options{
//		Prefix: "catalog:",
//		TTL:    10 * time.Minute,
//	})
//
// Or open a pool by DSN, with a blank import of this package:
//
//	e, err := driver.Open("redigo", "redis://user:password@localhost:6379/0?pool_size=20")
//
// The schemes are redis, rediss (TLS) and unix (unix:///path?db=0); valkey and
// valkeys mean the same as redis and rediss. The parameters are
//
//	client_name=text      the name of the connections
//	dial_timeout=5s       for a new connection
//	idle_timeout=4m       after it an idle connection is not used any more
//	max_conn_lifetime=1h  after it a connection is not used any more; default none
//	pool_size=64          connections at most; who finds none free waits for one
//	read_timeout=5s       for a reply, where no deadline says otherwise
//	skip_verify=true      do not verify the server's certificate; with TLS only
//	write_timeout=5s      for writing a command
//
// Open does not connect.
//
// # Clients
//
// [New] takes every [Client]. What it can do beyond scripts depends on the type:
//
//	             hits                ends calls in time by itself
//	*redis.Pool  by plain GET        yes
//	any other    by scripts only     no
//
// Batches need a *redis.Pool. One goes over one connection, in pipelines of 16 KiB.
//
// A ping works with every client. Wake-ups do as well, and take one connection
// of the pool, and one of the places that MaxActive allows, while reads wait and
// for up to ten seconds after. A near tier takes one for as long as its cache is
// open. A *redis.Pool with MaxActive 1 has none to spare: its reads poll, and there
// is no near tier. With another Client of one connection, set
// leasecache.StoreOptions.NoWakeUps.
//
// # Behaviour
//
// Commands are sent at most once: redigo repeats nothing. A connection that the
// server closed while it was idle fails at its next use, which leasecache then
// repeats; TestOnBorrow, or an IdleTimeout below the server's, spares that.
//
// A call ends by its context's deadline, which takes the place of the
// connection's read timeout, longer or shorter. Cancelling a context ends the
// wait for a connection, and nothing else. A call that ran out of time costs its
// connection, as with redigo in general.
//
// How long it takes to get a connection is up to the functions in the pool, and
// some of them know no context: Dial, TestOnBorrow, the handshake of TLS. So a
// bounded call that finds no idle connection, or a pool with a TestOnBorrow,
// waits for its connection in a goroutine, and leaves that behind when the time
// is over. A TestOnBorrowContext is trusted to heed its context, and spares hits
// the goroutine, a fifth of their time.
//
// # Limits
//
// redigo has no client for clusters: a command for a slot of another node fails,
// and the error says which adapters to use instead. It knows RESP2 only, so a
// pool whose connections were switched to RESP3 by HELLO cannot be used. With
// Sentinel, a pool works whose DialContext asks the sentinels for the primary.
//
// A call can wait longer than its bound when the connection that it saw idle was
// taken by the service meanwhile, or had passed the pool's IdleTimeout, and the
// pool then dials by a function that does not heed its context. The function's
// own timeout ends that.
//
// Nothing in a pool tells where it connects to. It must be the primary: a
// replica does not know the leases, and answers with values that were
// invalidated.
package redigo

import (
	"context"
	"errors"
	"reflect"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver"
)

// Client is the part of a pool that this package needs. *redis.Pool has it, and
// wrappers and mocks can.
//
// A Client must be safe for concurrent use, and its connections must be to the
// primary. They need redis.ConnWithTimeout and redis.ConnWithContext, which all
// connections of redigo have.
type Client interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// New returns an Evaler over c, to hand to leasecache.New. It has no error
// result: when c is nil, or a pool that cannot dial, leasecache.New reports it.
//
// New does not connect, and c is never closed. The Evaler is safe for concurrent
// use.
func New(c Client) driver.Evaler {
	if err := validate(c); err != nil {
		return driver.Invalid(err)
	}
	if _, ok := c.(*redis.Pool); ok {
		return full{evaler{client: c}}
	}
	return evaler{client: c}
}

func validate(c Client) error {
	if isNil(c) {
		return errors.New("redigo: pool is nil: hand over the *redis.Pool that the service uses")
	}
	if p, ok := c.(*redis.Pool); ok && p.Dial == nil && p.DialContext == nil {
		return errors.New("redigo: the pool cannot dial: set its DialContext, or its Dial")
	}
	return nil
}

// isNil reports whether c is nil, or holds a pointer or a function that is.
func isNil(c Client) bool {
	v := reflect.ValueOf(c)
	return c == nil || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

func init() { driver.Register("redigo", registered{}) }

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
