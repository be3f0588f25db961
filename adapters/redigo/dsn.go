package redigo

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const forms = "redis://, rediss://, valkey://, valkeys:// or unix://"

// parseDSN returns a pool for a DSN. Errors of net/url quote what they stumble
// over, which is often a part of a password that was not percent-encoded. So no
// error here prints anything but the scheme and names of parameters.
func parseDSN(dsn string) (*redis.Pool, error) {
	u, err := check(dsn)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	query := u.Query()
	duration := func(name string, or time.Duration) time.Duration {
		if d, err := time.ParseDuration(query.Get(name)); err == nil {
			return d
		}
		return or
	}
	number := func(s string, or int) int {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
		return or
	}

	network, addr, db := "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379")), strings.Trim(u.Path, "/")
	if u.Scheme == "unix" {
		network, addr, db = "unix", u.Path, query.Get("db")
	}
	password, _ := u.User.Password()
	connect := duration("dial_timeout", 5*time.Second)
	options := []redis.DialOption{
		redis.DialUsername(u.User.Username()),
		redis.DialPassword(password),
		redis.DialDatabase(number(db, 0)),
		redis.DialClientName(query.Get("client_name")),
		redis.DialConnectTimeout(connect),
		redis.DialTLSHandshakeTimeout(connect),
		redis.DialReadTimeout(duration("read_timeout", 5*time.Second)),
		redis.DialWriteTimeout(duration("write_timeout", 5*time.Second)),
	}
	if isTLS(u) {
		skip, _ := strconv.ParseBool(query.Get("skip_verify"))
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(&tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: skip, //nolint:gosec // as the DSN asks for
		}))
	}
	size := number(query.Get("pool_size"), 64)
	return &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, network, addr, options...)
		},
		MaxActive:       size,
		MaxIdle:         size,
		Wait:            true,
		IdleTimeout:     duration("idle_timeout", 4*time.Minute),
		MaxConnLifetime: duration("max_conn_lifetime", 0),
	}, nil
}

func isTLS(u *url.URL) bool { return u.Scheme == "rediss" || u.Scheme == "valkeys" }

// check returns the DSN's parts when each is right.
func check(dsn string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok {
		return nil, errors.New("no scheme: write " + forms)
	}
	scheme = strings.ToLower(scheme)
	if !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix"}, scheme) {
		if !plainScheme.MatchString(scheme) {
			return nil, errors.New("unknown scheme: write " + forms)
		}
		return nil, fmt.Errorf("unknown scheme %q: write "+forms, scheme)
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("it has a #: write it as %23")
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		return nil, malformed(rest)
	}
	return u, cmp.Or(checkUser(u), checkHost(u), checkPath(u), checkParams(u))
}

var (
	plainScheme = regexp.MustCompile(`^[a-z][a-z+]{0,19}$`)
	plainName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
)

// malformed tells which part of rest net/url does not take.
func malformed(rest string) error {
	authority, _, _ := strings.Cut(rest, "?")
	authority, _, _ = strings.Cut(authority, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if _, err := url.Parse("redis://" + authority[:i] + "@host"); err != nil {
			return errors.New("user name or password: percent-encode all but letters and digits, for example %20 for a space and %25 for a percent sign")
		}
		authority = authority[i+1:]
	}
	if _, err := url.Parse("redis://" + authority); err != nil {
		return errors.New("host or port: want host:port, the port a number, an IPv6 address in brackets; if this is a part of the user name or password, percent-encode all but letters and digits in them")
	}
	return errors.New("path: a percent sign in it must be followed by two hexadecimal digits")
}

func checkUser(u *url.URL) error {
	if password, _ := u.User.Password(); password == "" && u.User.Username() != "" {
		return errors.New("user name or password: a user name needs a password: write user:password@, or :password@ without a user name")
	}
	return nil
}

func checkHost(u *url.URL) error {
	if u.Scheme == "unix" {
		if u.Host != "" {
			return errors.New("host: a unix socket has none: write unix:///path or unix://user:password@/path")
		}
		return nil
	}
	if u.Hostname() == "" {
		return errors.New("host: it is missing: write " + u.Scheme + "://localhost:6379")
	}
	if strings.Contains(u.Host, ",") {
		return errors.New("host: want one: redigo has no client for clusters or Sentinel")
	}
	if p := u.Port(); p != "" && !isPort(p) {
		return errors.New("port: want a number from 1 to 65535; if this is a part of the user name or password, percent-encode all but letters and digits in them")
	}
	return nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func checkPath(u *url.URL) error {
	if u.Scheme == "unix" {
		if strings.Trim(u.Path, "/ ") == "" {
			return errors.New("path: it is empty: write unix:///path/to/socket")
		}
		return nil
	}
	if db := strings.TrimPrefix(u.Path, "/"); db != "" && !isDatabase(db) {
		return errors.New("database: want a number from 0, as in " + u.Scheme + "://host:6379/0; if this is a part of the user name or password, write a slash in them as %2F")
	}
	return nil
}

func isDatabase(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// params are the parameters that a DSN may have, with what their values must be.
var params = map[string]struct {
	ok   func(string) bool
	want string
}{
	"client_name":       {isWord, "a name without spaces"},
	"db":                {isDatabase, "a number from 0"},
	"dial_timeout":      {isDuration, durationForm},
	"idle_timeout":      {isDuration, durationForm},
	"max_conn_lifetime": {isDuration, durationForm},
	"pool_size":         {isSize, "a number from 1 to 65535"},
	"read_timeout":      {isDuration, durationForm},
	"skip_verify":       {func(s string) bool { _, err := strconv.ParseBool(s); return err == nil }, "true or false"},
	"write_timeout":     {isDuration, durationForm},
}

const durationForm = "a duration such as 500ms, above 0"

func isWord(s string) bool { return s != "" && !strings.ContainsAny(s, " \r\n") }

func isSize(s string) bool { return isPort(s) }

func isDuration(s string) bool {
	d, err := time.ParseDuration(s)
	return err == nil && d > 0
}

// known returns the names of the parameters that a DSN of u's scheme may have.
func known(u *url.URL) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(params)), func(name string) bool {
		return name == "db" && u.Scheme != "unix" || name == "skip_verify" && !isTLS(u)
	})
}

func checkParams(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("parameters: write name=value&name=value, with a percent sign followed by two hexadecimal digits")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p := params[name]
		if !slices.Contains(known(u), name) {
			// The "name" may be what follows a question mark, or an ampersand, in
			// a password. Then an @ follows, or there is no value.
			if !plainName.MatchString(name) || !strings.Contains(u.RawQuery, name+"=") || strings.Contains(u.RawQuery, "@") {
				return errors.New("parameters: one is unknown; if it is a part of the user name or password, percent-encode all but letters and digits in them")
			}
			return fmt.Errorf("parameter %q: %s:// does not know it; there are %s", name, u.Scheme, strings.Join(known(u), ", "))
		}
		if len(query[name]) > 1 {
			return fmt.Errorf("parameter %q: it is there twice: write it once", name)
		}
		if !p.ok(query.Get(name)) {
			return fmt.Errorf("parameter %q: want %s", name, p.want)
		}
	}
	return nil
}
