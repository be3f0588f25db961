// Package glide lets leasecache use the client of
// github.com/valkey-io/valkey-glide/go/v2, Valkey GLIDE, that a service already
// has. The two packages have the same name, so one of them is imported under
// another:
//
//	import lcglide "github.com/leasecache/leasecache/adapters/glide"
//
//	client, err := glide.NewClient(config.NewClientConfiguration().
//		WithAddress(&config.NodeAddress{Host: "localhost", Port: 6379}))
//	...
//	products, err := leasecache.New[Product](lcglide.New(client), leasecache.Options{
//		Prefix: "catalog:",
//		TTL:    10 * time.Minute,
//	})
//
// Or open a client by DSN, with a blank import of this package:
//
//	e, err := driver.Open("glide", "redis://user:password@localhost:6379/0?request_timeout=1s")
//
// The schemes are redis and rediss (TLS); valkey and valkeys mean the same. The
// parameters are
//
//	addr=host:port      further hosts of a cluster, or replicas
//	client_name=text    the name of the connections
//	cluster=true        the hosts are those of a cluster
//	dial_timeout=5s     for a new connection
//	request_timeout=5s  for a call without a deadline; 1ms to 24h
//	skip_verify=true    do not verify the server's certificate; with TLS only
//
// Open connects, and fails when it cannot.
//
// # Clients
//
// [New] takes a *glide.Client, a *glide.ClusterClient, and every other [Client].
// All of them have plain GET for hits, end their calls in time by themselves, and
// have a ping.
//
// # Cost
//
// glide is written in Rust, and comes as a static library in its Go module. Who
// imports this package needs cgo and a C compiler, and builds for linux or darwin
// on amd64 or arm64, which are all that glide is there for; on musl, as in Alpine,
// with the build tag musl. The program is linked to the C library dynamically. One
// that does no more than open a client has 27 MB, and 11 MB with adapters/goredis;
// without symbols 23 MB and 8 MB. The module of glide is a download of 52 MB, and
// has 175 MB in the module cache. Nobody who does not import this package pays for
// any of it.
//
// # Behaviour
//
// Commands are sent at most once: glide repeats what it certainly has not sent,
// and nothing else. Redirections of a cluster are followed, because the node that
// redirects has not run the command.
//
// Each command travels in a batch of its own, also the GET of a hit. A batch goes
// to the primary, whatever ReadFrom says, and is not answered from a
// ClientSideCache, which would hand out values that were invalidated. It is not
// compressed either, and no circuit breaker applies to it.
//
// A call ends by its context's deadline, which takes the place of the client's
// RequestTimeout, longer or shorter, though not for more than 5 s unless
// leasecache asks for it. Without a deadline a call ends by the RequestTimeout,
// 250 ms by default. Cancelling a context does not end a call: glide would leave a
// goroutine behind, for ever if the client is closed before the reply.
//
// glide reports that it has no connection as it reports that there was no reply:
// the request timed out. So after a call without a reply the next command is sent
// only once the server has answered to a script that does nothing. Until then
// calls fail as not sent.
//
// glide has one connection to a server, and keeps it when a reply is late. If one
// is never answered, while the server is well, calls fail until the connection
// breaks.
//
// glide has no types for the errors that a server replies with. Their codes are
// read from the text, in the forms that the version has that this module requires.
//
// # Limits
//
// glide writes to its connections on threads that Go does not know. When it writes
// to one that the server has closed, the system signals SIGPIPE, and that ends the
// process, unless it ignores the signal. So a program with a client of glide needs
// this, with this package or without:
//
//	signal.Ignore(syscall.SIGPIPE)
//
// This package does not do it, because the signal belongs to the program: without
// it, writing to a closed standard output does not end the program either.
//
// For an empty string in a reply glide v2.5.3 holds a pointer that is none. If Go
// moves the goroutine's stack in that moment, which is rare, it ends the process:
// "invalid pointer found on stack". A program that caches empty values should run
// with GODEBUG=invalidptr=0 in its environment, which turns that check off.
//
// Nothing in a client tells where its commands go, so New cannot refuse a client
// that must not be used: one with ReadOnly, which takes a replica for the primary.
// A replica does not know the leases, and answers with values that were
// invalidated. With NodeDiscoveryModeStatic the first address must be the primary.
//
// glide for Go has RESP3 only, and neither Sentinel, unix sockets nor client
// certificates.
package glide

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/valkey-io/valkey-glide/go/v2/pipeline"

	"github.com/leasecache/leasecache/driver"
)

// Batch is a list of commands, as a client takes it.
type Batch interface {
	pipeline.StandaloneBatch | pipeline.ClusterBatch
}

// BatchOptions are the options of a batch, as a client takes them.
type BatchOptions interface {
	pipeline.StandaloneBatchOptions | pipeline.ClusterBatchOptions
}

// Client is the part of a client that this package needs. *glide.Client and
// *glide.ClusterClient have it, each for its own type of batch, and wrappers and
// mocks can.
//
// A Client must be safe for concurrent use, must send a batch that is not atomic
// to the primary, or to the node of the route in the options, and not a second
// time, and must give up when the timeout in the options is over.
type Client[B Batch, O BatchOptions] interface {
	ExecWithOptions(ctx context.Context, batch B, raiseOnError bool, options O) ([]any, error)
}

// New returns an Evaler over c, to hand to leasecache.New. It has no error
// result: when c is nil, leasecache.New reports it.
//
// New does not connect, and c is never closed. The Evaler is safe for concurrent
// use.
func New[B Batch, O BatchOptions](c Client[B, O]) driver.Evaler {
	if isNil(c) {
		return driver.Invalid(errNil)
	}
	switch c := any(c).(type) {
	case standaloneClient:
		return evaler{client: standalone{c}, doubtful: new(atomic.Bool)}
	case clusterClient:
		return evaler{client: cluster{c}, doubtful: new(atomic.Bool)}
	}
	return driver.Invalid(fmt.Errorf("glide: a %T takes the batches of one kind of client with the options of the other", c))
}

var errNil = errors.New("glide: client is nil: hand over the *glide.Client or *glide.ClusterClient that the service uses")

func isNil(c any) bool {
	v := reflect.ValueOf(c)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
