package glide

import (
	"cmp"
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

	"github.com/valkey-io/valkey-glide/go/v2/config"
)

const forms = "redis://, rediss://, valkey:// or valkeys://"

// options are what a DSN says.
type options struct {
	hosts          []config.NodeAddress
	user, password string
	db             int
	tls            bool
	skipVerify     bool
	clientName     string
	dialTimeout    time.Duration
	requestTimeout time.Duration
	cluster        bool
}

// config returns the configuration of a client that is not for a cluster.
func (o options) config() *config.ClientConfiguration {
	c := config.NewClientConfiguration().
		WithUseTLS(o.tls).WithRequestTimeout(o.requestTimeout).WithClientName(o.clientName).WithDatabaseId(o.db).
		WithReconnectStrategy(reconnect()).
		WithAdvancedConfiguration(config.NewAdvancedClientConfiguration().
			WithConnectionTimeout(o.dialTimeout).WithTlsConfiguration(o.tlsConfig()))
	for i := range o.hosts {
		c.WithAddress(&o.hosts[i])
	}
	if o.password != "" {
		c.WithCredentials(config.NewServerCredentials(o.user, o.password))
	}
	return c
}

// clusterConfig returns the configuration of a client for a cluster.
func (o options) clusterConfig() *config.ClusterClientConfiguration {
	c := config.NewClusterClientConfiguration().
		WithUseTLS(o.tls).WithRequestTimeout(o.requestTimeout).WithClientName(o.clientName).WithDatabaseId(o.db).
		WithReconnectStrategy(reconnect()).
		WithAdvancedConfiguration(config.NewAdvancedClusterClientConfiguration().
			WithConnectionTimeout(o.dialTimeout).WithTlsConfiguration(o.tlsConfig()))
	for i := range o.hosts {
		c.WithAddress(&o.hosts[i])
	}
	if o.password != "" {
		c.WithCredentials(config.NewServerCredentials(o.user, o.password))
	}
	return c
}

// reconnect returns how often glide tries to connect, and how fast: at once, and
// after 0.1, 0.2 and 0.4 s, which it then repeats. With its own, of 3 s and more,
// opening a client ends by the timeout, and nobody is told what was wrong.
func reconnect() *config.BackoffStrategy { return config.NewBackoffStrategy(3, 50, 2) }

func (o options) tlsConfig() *config.TlsConfiguration {
	return config.NewTlsConfiguration().WithInsecureTLS(o.skipVerify)
}

// parseDSN returns the options of a DSN. Errors of net/url quote what they
// stumble over, which is often a part of a password that was not percent-encoded.
// So no error here prints anything but the scheme and names of parameters.
func parseDSN(dsn string) (options, error) {
	u, err := check(dsn)
	if err != nil {
		return options{}, fmt.Errorf("dsn: %w", err)
	}
	query := u.Query()
	duration := func(name string) time.Duration {
		if d, err := time.ParseDuration(query.Get(name)); err == nil {
			return d
		}
		return 5 * time.Second
	}
	o := options{
		user:           u.User.Username(),
		tls:            isTLS(u),
		clientName:     query.Get("client_name"),
		dialTimeout:    duration("dial_timeout"),
		requestTimeout: duration("request_timeout"),
	}
	o.password, _ = u.User.Password()
	o.db, _ = strconv.Atoi(strings.Trim(u.Path, "/"))
	o.skipVerify, _ = strconv.ParseBool(query.Get("skip_verify"))
	o.cluster, _ = strconv.ParseBool(query.Get("cluster"))
	for _, addr := range append([]string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379"))}, query["addr"]...) {
		host, port, _ := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(port)
		o.hosts = append(o.hosts, config.NodeAddress{Host: host, Port: n})
	}
	return o, nil
}

func isTLS(u *url.URL) bool { return u.Scheme == "rediss" || u.Scheme == "valkeys" }

// check returns the DSN's parts when each is right.
func check(dsn string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok {
		return nil, errors.New("no scheme: write " + forms)
	}
	scheme = strings.ToLower(scheme)
	if scheme == "unix" {
		return nil, errors.New("scheme unix: glide for Go has no unix sockets: write " + forms)
	}
	if !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys"}, scheme) {
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
	if u.Hostname() == "" {
		return errors.New("host: it is missing: write " + u.Scheme + "://localhost:6379")
	}
	if strings.Contains(u.Host, ",") {
		return errors.New("host: want one; further hosts of a cluster, or replicas, go into the parameter addr")
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
	"addr":            {isAddr, "host:port; user name and password are written once, before the first host"},
	"client_name":     {isWord, "a name without spaces"},
	"cluster":         {isBool, "true or false"},
	"dial_timeout":    {isDuration, durationForm},
	"request_timeout": {isDuration, durationForm},
	"skip_verify":     {isBool, "true or false"},
}

const durationForm = "a duration such as 500ms, of 1ms to 24h"

func isWord(s string) bool { return s != "" && !strings.ContainsAny(s, " \r\n") }

func isBool(s string) bool {
	_, err := strconv.ParseBool(s)
	return err == nil
}

func isAddr(s string) bool {
	h, p, err := net.SplitHostPort(s)
	return err == nil && h != "" && isPort(p) && !strings.ContainsAny(h, "@/")
}

func isDuration(s string) bool {
	d, err := time.ParseDuration(s)
	return err == nil && d >= time.Millisecond && d <= 24*time.Hour
}

func checkParams(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("parameters: write name=value&name=value, with a percent sign followed by two hexadecimal digits")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p, ok := params[name]
		if !ok || name == "skip_verify" && !isTLS(u) {
			// The "name" may be what follows a question mark, or an ampersand, in
			// a password. Then an @ follows, or there is no value.
			if !plainName.MatchString(name) || !strings.Contains(u.RawQuery, name+"=") || strings.Contains(u.RawQuery, "@") {
				return errors.New("parameters: one is unknown; if it is a part of the user name or password, percent-encode all but letters and digits in them")
			}
			return fmt.Errorf("parameter %q: %s:// does not know it; there are %s", name, u.Scheme, strings.Join(slices.Sorted(maps.Keys(params)), ", "))
		}
		if len(query[name]) > 1 && name != "addr" {
			return fmt.Errorf("parameter %q: it is there twice: write it once", name)
		}
		for _, value := range query[name] {
			if !p.ok(value) {
				return fmt.Errorf("parameter %q: want %s", name, p.want)
			}
		}
	}
	return nil
}
