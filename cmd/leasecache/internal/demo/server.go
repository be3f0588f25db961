package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/leasecache/leasecache"
	_ "github.com/leasecache/leasecache/adapters/goredis" // registers "goredis"
	"github.com/leasecache/leasecache/adapters/miniredis"
	"github.com/leasecache/leasecache/driver"
)

// Embedded is the driver that stands for the embedded server.
const Embedded = "miniredis"

// address is how parent and workers reach the server.
type address struct {
	Driver string `json:"driver"`
	DSN    string `json:"dsn"`
}

// embed starts the embedded server, on a port that only this machine reaches:
// the workers are other processes, and talk to it as to any server.
func embed() (a address, stop func() error, err error) {
	s := miniredis.New()
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		return a, nil, errors.Join(fmt.Errorf("start the embedded server: %w", err), s.Close())
	}
	return address{"goredis", "redis://" + addr}, s.Close, nil
}

// clients are a process's clients of the server, one for each side.
type clients struct {
	store *leasecache.Store
	rdb   redis.UniversalClient
}

// connect opens the clients and sees whether the server answers.
func connect(ctx context.Context, a address) (*clients, error) {
	logging.Disable() // go-redis would log what it also returns, once per connection
	if !slices.Contains(driver.Drivers(), a.Driver) {
		return nil, UsageError{fmt.Errorf("--driver %q: no such driver: this program has %s",
			a.Driver, strings.Join(driver.Drivers(), ", "))}
	}
	// On a machine that has more to do than it can, a step may take its time.
	store, err := leasecache.Open(a.Driver, a.DSN, leasecache.StoreOptions{CallTimeout: 5 * time.Second})
	if err != nil {
		return nil, UsageError{fmt.Errorf("--dsn: %w", err)}
	}
	rdb, err := goRedis(a.DSN)
	if err != nil {
		return nil, UsageError{errors.Join(fmt.Errorf("--dsn: %w", err), store.Close())}
	}
	c := &clients{store, rdb}
	if err := store.Ping(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the server does not answer: %w", err), c.close())
	}
	return c, nil
}

func (c *clients) close() error { return errors.Join(c.rdb.Close(), c.store.Close()) }

// goRedis opens the client of the naive side, from a DSN that the driver took.
// Its errors leave out those of go-redis, which may quote a password.
func goRedis(dsn string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(dsn, "://")
	scheme, kind, _ := strings.Cut(strings.ToLower(scheme), "+")
	dsn = scheme + "://" + rest
	switch kind {
	case "":
		if o, err := redis.ParseURL(dsn); err == nil {
			return redis.NewClient(o), nil
		}
	case "cluster":
		if o, err := redis.ParseClusterURL(dsn); err == nil {
			return redis.NewClusterClient(o), nil
		}
	case "sentinel":
		if o, err := redis.ParseFailoverURL(dsn); err == nil {
			return redis.NewFailoverClient(o), nil
		}
	}
	return nil, errors.New("the naive side of the demo cannot use it: " +
		"give it a single server (redis://), a cluster (redis+cluster://) or sentinels (redis+sentinel://)")
}
