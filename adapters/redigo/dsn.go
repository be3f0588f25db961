package redigo

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache/driver/dsn"
)

var form = dsn.Form{
	Schemes:      []string{"redis", "rediss", "valkey", "valkeys", "unix"},
	MoreHosts:    "redigo has no client for clusters or Sentinel",
	NeedPassword: true,
	Params: []dsn.Param{
		{Name: "client_name", Value: dsn.Word("a name without spaces")},
		{Name: "db", Value: dsn.Database(), Schemes: []string{"unix"}},
		{Name: "dial_timeout", Value: dsn.Duration()},
		{Name: "idle_timeout", Value: dsn.Duration()},
		{Name: "max_conn_lifetime", Value: dsn.Duration()},
		{Name: "pool_size", Value: dsn.Size()},
		{Name: "read_timeout", Value: dsn.Duration()},
		{Name: "skip_verify", Value: dsn.Bool(), Schemes: []string{"rediss", "valkeys"}},
		{Name: "write_timeout", Value: dsn.Duration()},
	},
}

// parseDSN returns a pool for a DSN.
func parseDSN(s string) (*redis.Pool, error) {
	d, err := form.Parse(s)
	if err != nil {
		return nil, err
	}
	network := "tcp"
	if d.Scheme == "unix" {
		network = "unix"
	}
	connect := d.Duration("dial_timeout", 5*time.Second)
	options := []redis.DialOption{
		redis.DialUsername(d.User),
		redis.DialPassword(d.Password),
		redis.DialDatabase(d.DB),
		redis.DialClientName(d.Get("client_name")),
		redis.DialConnectTimeout(connect),
		redis.DialTLSHandshakeTimeout(connect),
		redis.DialReadTimeout(d.Duration("read_timeout", 5*time.Second)),
		redis.DialWriteTimeout(d.Duration("write_timeout", 5*time.Second)),
	}
	if d.TLS {
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(&tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: d.Bool("skip_verify"), //nolint:gosec // as the DSN asks for
		}))
	}
	size := d.Int("pool_size", 64)
	return &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, network, d.Addr, options...)
		},
		MaxActive:       size,
		MaxIdle:         size,
		Wait:            true,
		IdleTimeout:     d.Duration("idle_timeout", 4*time.Minute),
		MaxConnLifetime: d.Duration("max_conn_lifetime", 0),
	}, nil
}
