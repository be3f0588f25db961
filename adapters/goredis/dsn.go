package goredis

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
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
const forms = "redis://, rediss://, unix://, redis+cluster://, rediss+cluster://, " +
	"redis+sentinel://, rediss+sentinel://, redis+ring:// or rediss+ring://"

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

// parseDSN leaves the parsing to go-redis, but finds what is wrong by itself:
// errors of net/url and of go-redis quote what they stumble over, and what they
// stumble over is often a part of a password that was not percent-encoded. So no
// error here prints anything but the scheme and names of parameters.
func parseDSN(dsn string) (target, error) {
	d, err := split(dsn)
	if err != nil {
		return target{}, err
	}
	for _, check := range []func(parts) error{checkUser, checkHost, checkPath, checkParams} {
		if err := check(d); err != nil {
			return target{}, fmt.Errorf("dsn: %w", err)
		}
	}
	t, err := d.parse(d.rest)
	if err != nil {
		return target{}, errors.New("dsn: go-redis does not take it, although each part of it looks right")
	}
	if err := t.check(); err != nil {
		return target{}, fmt.Errorf("dsn: %w", err)
	}
	return t, nil
}

// parts are the parts of a DSN, as written.
type parts struct {
	scheme string // redis, rediss or unix
	kind   string // cluster, sentinel, ring or empty
	rest   string // all after ://

	user, host, path, query string
	hasUser                 bool
}

func split(dsn string) (parts, error) {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok {
		return parts{}, errors.New("dsn: no scheme: write " + forms)
	}
	d := parts{rest: rest}
	d.scheme, d.kind, _ = strings.Cut(strings.ToLower(scheme), "+")
	if !slices.Contains(strings.FieldsFunc(forms, func(r rune) bool { return r == ' ' || r == ',' }), strings.ToLower(scheme)+"://") {
		if !plainScheme.MatchString(scheme) {
			return parts{}, errors.New("dsn: unknown scheme: write " + forms)
		}
		return parts{}, fmt.Errorf("dsn: unknown scheme %q: write "+forms, scheme)
	}
	if strings.Contains(rest, "#") {
		return parts{}, errors.New("dsn: it has a #: write it as %23")
	}
	d.host, d.query, _ = strings.Cut(rest, "?")
	if i := strings.IndexByte(d.host, '/'); i >= 0 {
		d.host, d.path = d.host[:i], d.host[i:]
	}
	if i := strings.LastIndexByte(d.host, '@'); i >= 0 {
		d.user, d.host, d.hasUser = d.host[:i], d.host[i+1:], true
	}
	return d, nil
}

var (
	plainScheme = regexp.MustCompile(`^[a-z][a-z+]{0,19}$`)
	plainName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
)

func checkUser(d parts) error {
	if d.hasUser {
		if _, err := url.Parse("redis://" + d.user + "@host"); err != nil {
			return errors.New("user name or password: percent-encode all but letters and digits, for example %20 for a space and %25 for a percent sign")
		}
	}
	return nil
}

func checkHost(d parts) error {
	if d.scheme == "unix" {
		if d.host != "" {
			return errors.New("host: a unix socket has none: write unix:///path or unix://user:password@/path")
		}
		return nil
	}
	i := strings.LastIndexByte(d.host, ':')
	hasPort := i > strings.LastIndexByte(d.host, ']') && i < len(d.host)-1
	if hasPort && !isPort(d.host[i+1:]) {
		return errors.New("port: want a number from 1 to 65535; if this is a part of the user name or password, percent-encode all but letters and digits in them")
	}
	u, err := url.Parse("redis://" + d.host)
	if err != nil || strings.Contains(u.Hostname(), ",") {
		return errors.New("host: want a name or an address, an IPv6 one in brackets; further hosts of a cluster, of sentinels or of a ring go into the parameter addr")
	}
	if u.Hostname() == "" {
		// go-redis would go to localhost, which is rarely where a variable that
		// was not set should have led.
		return errors.New("host: it is missing: write " + d.String() + "localhost:6379")
	}
	return nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func checkPath(d parts) error {
	path, err := url.PathUnescape(d.path)
	if err != nil {
		return errors.New("path: a percent sign in it must be followed by two hexadecimal digits")
	}
	if d.scheme == "unix" {
		if strings.TrimSpace(path) == "" {
			return errors.New("path: it is empty: write unix:///path/to/socket")
		}
		return nil
	}
	db := strings.Trim(path, "/")
	if db == "" {
		return nil
	}
	if _, err := strconv.ParseUint(db, 10, 31); err != nil {
		return errors.New("database: want a number from 0, as in redis://host:6379/0; if this is a part of the user name or password, write a slash in them as %2F")
	}
	if d.kind == "cluster" && db != "0" {
		return errors.New("database: a cluster has only database 0")
	}
	return nil
}

// checkParams asks go-redis about one parameter at a time. It knows a name when
// it takes it without a value.
func checkParams(d parts) error {
	query, err := url.ParseQuery(d.query)
	if err != nil {
		return errors.New("parameters: write name=value&name=value, with a percent sign followed by two hexadecimal digits")
	}
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "addr" && d.kind != "" {
			for _, addr := range query[name] {
				h, p, err := net.SplitHostPort(addr)
				if err != nil || h == "" || !isPort(p) || strings.Contains(h, "@") {
					return errors.New(`parameter "addr": want host:port; user name and password are written once, before the first host`)
				}
			}
			continue
		}
		if _, err := d.parse(bare(d, name, "")); err != nil {
			// The "name" may be what follows a question mark, or an ampersand, in
			// a password. Then an @ follows, or there is no value.
			if !plainName.MatchString(name) || !strings.Contains(d.query, name+"=") ||
				strings.Contains(d.query, "@") || query.Has("password") && name != "password" {
				return errors.New("parameters: one is unknown; if it is a part of the user name or password, percent-encode all but letters and digits in them")
			}
			return fmt.Errorf("parameter %q: %s does not know it; there are %s", name, d, strings.Join(d.params(), ", "))
		}
		for _, value := range query[name] {
			if _, err := d.parse(bare(d, name, value)); err != nil {
				return fmt.Errorf("parameter %q: its value is malformed: numbers are written as 20, durations as 500ms, switches as true or false", name)
			}
		}
	}
	return nil
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

// params returns the names of the parameters that a DSN of d's kind may have.
func (d parts) params() []string {
	return slices.DeleteFunc(slices.Clone(paramNames), func(name string) bool {
		if name == "addr" {
			return d.kind == ""
		}
		_, err := d.parse(bare(d, name, ""))
		return err != nil
	})
}

// bare returns a DSN's rest that has one parameter and nothing else.
func bare(d parts, name, value string) string {
	host := "host"
	if d.scheme == "unix" {
		host = "/socket"
	}
	return host + "?" + url.Values{name: {value}}.Encode()
}

// String returns the scheme, for messages.
func (d parts) String() string {
	if d.kind == "" {
		return d.scheme + "://"
	}
	return d.scheme + "+" + d.kind + "://"
}

// parse has go-redis parse rest for the kind of client that d is for.
func (d parts) parse(rest string) (t target, err error) {
	u := d.scheme + "://" + rest
	switch d.kind {
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
