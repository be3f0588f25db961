package rueidis

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

	"github.com/redis/rueidis"
)

const forms = "redis://, rediss://, valkey://, valkeys:// or unix://"

// sentinelRefresh is how often a client that was opened by DSN asks a sentinel
// who the primary is.
const sentinelRefresh = 5 * time.Second

// parseDSN leaves the parsing to the client, but finds what is wrong by itself:
// errors of net/url and of the client quote what they stumble over, which is
// often a part of a password that was not percent-encoded. So no error here
// prints anything but the scheme and names of parameters.
func parseDSN(dsn string) (rueidis.ClientOption, error) {
	u, err := check(dsn)
	if err != nil {
		return rueidis.ClientOption{}, fmt.Errorf("dsn: %w", err)
	}
	o, err := rueidis.ParseURL(u.String())
	if err != nil {
		return o, errors.New("dsn: the client does not take it, although each part of it looks right")
	}
	// The client is ours. Nothing here uses its cache, which needs RESP3; and a
	// call that runs out of time must not take others with it.
	o.DisableCache = true
	o.AlwaysPipelining = true
	o.ForceSingleClient = u.Scheme == "unix"
	if o.Sentinel.MasterSet != "" {
		// Or one message that is lost would bind it to a primary that was deposed.
		o.Sentinel.TopologyRefreshInterval = sentinelRefresh
		o.Sentinel.TLSConfig = o.TLSConfig
		o.Sentinel.Dialer = o.Dialer
	}
	if o.TLSConfig != nil && len(o.InitAddress) > 1 {
		// Each host shows a certificate for its own name, not for the first's.
		o.TLSConfig.ServerName = ""
	}
	return o, nil
}

// check returns the DSN's parts when each is one that the client takes.
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
	if u.Path == "/" && scheme != "unix" {
		u.Path = "" // no database; the client takes it for one without a number
	}
	return u, cmp.Or(checkHost(u), checkPath(u), checkParams(u))
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
		return errors.New("host: want one; further hosts of a cluster, or further sentinels, go into the parameter addr")
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
	if u.Path != "" && !isDatabase(u.Path[1:]) {
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
	"addr":          {isAddr, "host:port; user name and password are written once, before the first host"},
	"client_name":   {isWord, "a name without spaces"},
	"db":            {isDatabase, "a number from 0"},
	"dial_timeout":  {isDuration, "a duration such as 500ms, above 0"},
	"master_set":    {isWord, "the name by which the sentinels know the primary"},
	"protocol":      {func(s string) bool { return s == "2" || s == "3" }, "2 or 3"},
	"skip_verify":   {func(s string) bool { _, err := strconv.ParseBool(s); return err == nil }, "true or false"},
	"write_timeout": {isDuration, "a duration such as 500ms, above 0"},
}

func isAddr(s string) bool {
	h, p, err := net.SplitHostPort(s)
	return err == nil && h != "" && isPort(p) && !strings.ContainsAny(h, "@/")
}

func isWord(s string) bool { return s != "" && !strings.ContainsAny(s, " \r\n") }

func isDuration(s string) bool {
	d, err := time.ParseDuration(s)
	return err == nil && d > 0
}

// known returns the names of the parameters that a DSN of u's scheme may have.
func known(u *url.URL) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(params)), func(name string) bool {
		switch name {
		case "addr", "master_set":
			return u.Scheme == "unix"
		case "db":
			return u.Scheme != "unix"
		case "skip_verify":
			return u.Scheme != "rediss" && u.Scheme != "valkeys"
		}
		return false
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
