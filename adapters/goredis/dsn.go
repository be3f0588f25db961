package goredis

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/driver/dsn"
)

// The forms of a DSN. Each is a URL of go-redis, of which the scheme tells what
// kind of client to make:
//
//	redis://user:password@host:6379/0?pool_size=20          redis.ParseURL
//	unix://user:password@/run/valkey.sock?db=0              redis.ParseURL
//	redis+cluster://host1:6379?addr=host2:6379              redis.ParseClusterURL
//	redis+sentinel://host1:26379/0?master_name=main&...     redis.ParseFailoverURL
//	redis+ring://host1:6379/0?addr=host2:6379&pool_size=20  redis.ParseURL, plus addr
//
// rediss instead of redis means TLS.
var form = dsn.Form{
	Schemes: []string{
		"redis", "rediss", "unix", "redis+cluster", "rediss+cluster",
		"redis+sentinel", "rediss+sentinel", "redis+ring", "rediss+ring",
	},
	MoreHosts: "further hosts of a cluster, of sentinels or of a ring go into the parameter addr",
	Params:    params(),
	Lookup:    lookup,
}

// target is what a DSN stands for: options of exactly one kind of client.
type target struct {
	single   *redis.Options
	cluster  *redis.ClusterOptions
	sentinel *redis.FailoverOptions
	ring     *redis.RingOptions
}

// openClient is a client that this package made, and therefore closes.
type openClient interface {
	Client
	io.Closer
}

// open makes the client. It does not connect.
func (t target) open() (c openClient, err error) {
	defer func() {
		// Constructors of go-redis panic on sizes that make no pool.
		if recover() != nil {
			err = errors.New("dsn: a size is out of range: check pool_size and the other numbers among the parameters")
		}
	}()
	// The client is ours: let it heed the deadlines of contexts.
	switch {
	case t.cluster != nil:
		t.cluster.ContextTimeoutEnabled = true
		return redis.NewClusterClient(t.cluster), nil
	case t.sentinel != nil:
		t.sentinel.ContextTimeoutEnabled = true
		return redis.NewFailoverClient(t.sentinel), nil
	case t.ring != nil:
		t.ring.ContextTimeoutEnabled = true
		return redis.NewRing(t.ring), nil
	}
	t.single.ContextTimeoutEnabled = true
	return redis.NewClient(t.single), nil
}

// parseDSN leaves the parsing to go-redis, after the DSN was checked.
func parseDSN(s string) (target, error) {
	d, err := form.Parse(s)
	if err != nil {
		return target{}, err
	}
	if strings.HasSuffix(d.Scheme, "+cluster") && d.DB != 0 {
		return target{}, errors.New("dsn: database: a cluster has only database 0")
	}
	t, err := parse(d.Scheme, strings.TrimPrefix(d.URL.String(), d.Scheme+"://"))
	if err != nil { // which may print the password
		return target{}, errors.New("dsn: go-redis does not take it, although each part of it looks right")
	}
	if err := t.check(); err != nil {
		return target{}, fmt.Errorf("dsn: %w", err)
	}
	return t, nil
}

// paramNames are the parameters of go-redis's URLs of any kind, and those of
// another kind that are named the same. Left out are older names, and those by
// which reads go to replicas.
var paramNames = []string{
	"addr", "client_name", "conn_max_idle_time", "conn_max_lifetime", "conn_max_lifetime_jitter", "context_timeout_enabled", "db",
	"dial_timeout", "dialer_retries", "dialer_retry_timeout", "disableIdentity", "failing_timeout_seconds", "identitySuffix",
	"master_name", "max_active_conns", "max_concurrent_dials", "max_idle_conns", "max_redirects", "max_retries", "max_retry_backoff",
	"min_idle_conns", "min_retry_backoff", "password", "pipeline_pool_size", "pipeline_read_buffer_size", "pipeline_write_buffer_size",
	"pool_fifo", "pool_size", "pool_timeout", "protocol", "read_timeout", "skip_verify", "unstable_resp3",
	"use_disconnected_replicas", "username", "write_timeout",
}

func params() []dsn.Param {
	params := make([]dsn.Param, len(paramNames))
	for i, name := range paramNames {
		params[i].Name = name
	}
	return params
}

// lookup asks go-redis, which knows a parameter when it takes it without a value.
// So parameters of a later go-redis can be used as soon as it is there.
func lookup(scheme, name string) (dsn.Param, bool) {
	if name == "addr" {
		return dsn.Param{Value: dsn.Addr(), Repeated: true}, strings.Contains(scheme, "+")
	}
	takes := func(value string) bool {
		rest := "host"
		if scheme == "unix" {
			rest = "/socket"
		}
		_, err := parse(scheme, rest+"?"+url.Values{name: {value}}.Encode())
		return err == nil
	}
	want := "a value that go-redis takes: numbers are written as 20, durations as 500ms, switches as true or false"
	return dsn.Param{Value: dsn.Value{Valid: takes, Want: want}, Repeated: true}, takes("")
}

// parse has go-redis parse a URL for the kind of client that the scheme of a DSN
// names. rest is all after the scheme.
func parse(scheme, rest string) (t target, err error) {
	base, kind, _ := strings.Cut(scheme, "+")
	u := base + "://" + rest
	switch kind {
	case "cluster":
		t.cluster, err = redis.ParseClusterURL(u)
	case "sentinel":
		t.sentinel, err = redis.ParseFailoverURL(u)
	case "ring":
		t.ring, err = parseRing(u)
	default:
		t.single, err = redis.ParseURL(u)
	}
	return t, err
}

// check refuses what go-redis takes and leasecache cannot work with.
func (t target) check() error {
	if o := t.cluster; o != nil && (o.ReadOnly || o.RouteByLatency || o.RouteRandomly) {
		return errors.New(`parameters: leave out "read_only", "route_by_latency" and "route_randomly": replicas do not know the leases, so all goes to the primary`)
	}
	if o := t.sentinel; o != nil {
		if o.MasterName == "" {
			return errors.New(`parameter "master_name": it is missing: write the name by which the sentinels know the primary`)
		}
		if o.ReplicaOnly || o.RouteByLatency || o.RouteRandomly {
			return errors.New(`parameters: leave out "replica_only", "route_by_latency" and "route_randomly": replicas do not know the leases, so all goes to the primary`)
		}
	}
	return nil
}

// parseRing does for a ring what redis.ParseClusterURL does for a cluster. The
// shards are named by their addresses, so that the order in which a DSN lists
// them does not decide which keys they hold.
func parseRing(rawURL string) (*redis.RingOptions, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	addrs := query["addr"]
	query.Del("addr")
	u.RawQuery = query.Encode()
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	if o.TLSConfig != nil && len(addrs) > 0 {
		// Each shard shows a certificate for its own name, not for the first's.
		o.TLSConfig.ServerName = ""
	}
	shards := map[string]string{o.Addr: o.Addr}
	for _, addr := range addrs {
		shards[addr] = addr
	}
	return &redis.RingOptions{
		Addrs: shards,
		NewClient: func(shard *redis.Options) *redis.Client {
			shard.MaxConcurrentDials = o.MaxConcurrentDials // has no field here
			return redis.NewClient(shard)
		},
		ClientName:              o.ClientName,
		Protocol:                o.Protocol,
		Username:                o.Username,
		Password:                o.Password,
		DB:                      o.DB,
		MaxRetries:              o.MaxRetries,
		MinRetryBackoff:         o.MinRetryBackoff,
		MaxRetryBackoff:         o.MaxRetryBackoff,
		DialTimeout:             o.DialTimeout,
		ReadTimeout:             o.ReadTimeout,
		WriteTimeout:            o.WriteTimeout,
		PoolFIFO:                o.PoolFIFO,
		PoolSize:                o.PoolSize,
		PoolTimeout:             o.PoolTimeout,
		MinIdleConns:            o.MinIdleConns,
		MaxIdleConns:            o.MaxIdleConns,
		MaxActiveConns:          o.MaxActiveConns,
		ConnMaxIdleTime:         o.ConnMaxIdleTime,
		ConnMaxLifetime:         o.ConnMaxLifetime,
		ConnMaxLifetimeJitter:   o.ConnMaxLifetimeJitter,
		PipelinePoolSize:        o.PipelinePoolSize,
		PipelineReadBufferSize:  o.PipelineReadBufferSize,
		PipelineWriteBufferSize: o.PipelineWriteBufferSize,
		TLSConfig:               o.TLSConfig,
	}, nil
}
