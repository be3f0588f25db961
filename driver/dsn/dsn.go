// Package dsn reads DSNs that are URLs, for adapters that register a driver:
//
//	redis://user:password@host:6379/0?dial_timeout=1s
//	unix://user:password@/run/valkey.sock?db=0
//
// An adapter says in a [Form] which schemes and parameters it takes, and makes the
// options of its client from the [Parts] that Parse returns. Parse finds what is
// wrong by itself and says what to write instead. Errors of net/url, and of the
// parsers of clients, quote what they stumble over, which is often a part of a
// password that was not percent-encoded. So no error of this package prints
// anything of a DSN but the scheme and names of parameters.
package dsn

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
)

// Form is what an adapter takes for a DSN. It is not changed by its methods, which
// may be called by several goroutines at once.
type Form struct {
	// Schemes are the schemes in small letters, as "redis", in the order in which
	// errors list them. "unix" stands for a socket: its DSN has a path and no
	// host. A DSN of any other scheme has one host, and a path only for the number
	// of a database. "rediss" and "valkeys" mean TLS, also in front of a plus sign,
	// as in "rediss+cluster".
	Schemes []string
	// Params are the parameters, of which each name is there once. A DSN with
	// another parameter is refused.
	Params []Param
	// Lookup, if set, is asked in place of Params about each parameter that a DSN of
	// scheme has, by an adapter whose client knows best. Params then serve only for
	// the list in an error, of which their names are enough.
	Lookup func(scheme, name string) (Param, bool)
	// MoreHosts is added to the error for a DSN with several hosts. It says where
	// further ones go, or that there cannot be any.
	MoreHosts string
	// NeedPassword refuses a user name without a password, for clients that would
	// leave it out.
	NeedPassword bool
}

// Param is a parameter, what follows the question mark in a DSN.
type Param struct {
	Name string
	// Value is what its value must be.
	Value Value
	// Schemes are those whose DSNs may have it, all when empty.
	Schemes []string
	// Repeated allows it more than once.
	Repeated bool
}

// Parts are the parts of a DSN, each checked.
type Parts struct {
	Scheme string // in small letters
	TLS    bool
	// User and Password are empty when there is none.
	User, Password string
	// Addr is host:port, with port 6379 when the DSN has none; or the path of a
	// socket.
	Addr string
	// DB is the number of the database, 0 when the DSN has none. For a socket it is
	// the parameter "db".
	DB int
	// URL is the DSN for a client that parses it by itself. Errors of such a parser
	// are not to be passed on: they may print the password.
	URL *url.URL

	params url.Values
}

// String returns the scheme and the address, and nothing that may be secret.
func (p Parts) String() string { return p.Scheme + "://" + p.Addr }

// GoString returns the same, for %#v.
func (p Parts) GoString() string { return p.String() }

// Get returns a parameter, the first if there are several, and "" if there is none.
func (p *Parts) Get(name string) string { return p.params.Get(name) }

// All returns all values of a parameter, in the order of the DSN.
func (p *Parts) All(name string) []string { return slices.Clone(p.params[name]) }

// Duration returns a parameter of which the value is a duration, and or if there
// is none.
func (p *Parts) Duration(name string, or time.Duration) time.Duration {
	if d, err := time.ParseDuration(p.Get(name)); err == nil {
		return d
	}
	return or
}

// Int returns a parameter of which the value is a number, and or if there is none.
func (p *Parts) Int(name string, or int) int {
	if n, err := strconv.Atoi(p.Get(name)); err == nil {
		return n
	}
	return or
}

// Bool returns a parameter of which the value is true or false, and false if there
// is none.
func (p *Parts) Bool(name string) bool {
	b, _ := strconv.ParseBool(p.Get(name))
	return b
}

// String returns the schemes as an error lists them: "redis://, rediss:// or unix://".
func (f Form) String() string {
	var b strings.Builder
	for i, scheme := range f.Schemes {
		switch i {
		case 0:
		case len(f.Schemes) - 1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(scheme + "://")
	}
	return b.String()
}

// Parse returns the parts of a DSN if each is right. Its errors begin with "dsn: "
// and print nothing of the DSN but the scheme and names of parameters.
func (f Form) Parse(dsn string) (*Parts, error) {
	p, err := f.parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	return p, nil
}

func (f Form) parse(dsn string) (*Parts, error) {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok {
		return nil, errors.New("no scheme: write " + f.String())
	}
	scheme = strings.ToLower(scheme)
	if !slices.Contains(f.Schemes, scheme) {
		if !plainScheme.MatchString(scheme) {
			return nil, errors.New("unknown scheme: write " + f.String())
		}
		return nil, fmt.Errorf("unknown scheme %q: write %v", scheme, f)
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("it has a #: write it as %23")
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		return nil, f.malformed(rest)
	}
	p := &Parts{Scheme: scheme, URL: u, User: u.User.Username()}
	p.Password, _ = u.User.Password()
	base, _, _ := strings.Cut(scheme, "+")
	p.TLS = base == "rediss" || base == "valkeys"
	for _, check := range []func(*Parts) error{f.checkUser, f.checkHost, checkPath, f.checkParams} {
		if err := check(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

var (
	plainScheme = regexp.MustCompile(`^[a-z][a-z+]{0,19}$`)
	plainName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
)

// malformed tells which part of rest net/url does not take.
func (f Form) malformed(rest string) error {
	authority, _, _ := strings.Cut(rest, "?")
	authority, _, _ = strings.Cut(authority, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if _, err := url.Parse("redis://" + authority[:i] + "@host"); err != nil {
			return errors.New("user name or password: percent-encode all but letters and digits, for example %20 for a space and %25 for a percent sign")
		}
		authority = authority[i+1:]
	}
	if isNoHost(authority) {
		if hosts := strings.Split(authority, ","); len(hosts) > 1 && !slices.ContainsFunc(hosts, isNoHost) {
			return f.severalHosts()
		}
		return errors.New("host or port: want host:port, the port a number, an IPv6 address in brackets; if this is a part of the user name or password, percent-encode all but letters and digits in them")
	}
	return errors.New("path: a percent sign in it must be followed by two hexadecimal digits")
}

func isNoHost(s string) bool {
	_, err := url.Parse("redis://" + s)
	return err != nil
}

func (f Form) checkUser(p *Parts) error {
	if f.NeedPassword && p.Password == "" && p.User != "" {
		return errors.New("user name or password: a user name needs a password: write user:password@, or :password@ without a user name")
	}
	return nil
}

func (f Form) checkHost(p *Parts) error {
	u := p.URL
	if p.Scheme == "unix" {
		if u.Host != "" {
			return errors.New("host: a unix socket has none: write unix:///path or unix://user:password@/path")
		}
		return nil
	}
	if u.Hostname() == "" {
		return errors.New("host: it is missing: write " + p.Scheme + "://localhost:6379")
	}
	if strings.Contains(u.Host, ",") {
		return f.severalHosts()
	}
	if port := u.Port(); port != "" && !isPort(port) {
		return errors.New("port: want a number from 1 to 65535; if this is a part of the user name or password, percent-encode all but letters and digits in them")
	}
	p.Addr = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379"))
	return nil
}

func (f Form) severalHosts() error {
	if f.MoreHosts == "" {
		return errors.New("host: want one")
	}
	return errors.New("host: want one; " + f.MoreHosts)
}

func checkPath(p *Parts) error {
	u := p.URL
	if p.Scheme == "unix" {
		if strings.Trim(u.Path, "/ ") == "" {
			return errors.New("path: it is empty: write unix:///path/to/socket")
		}
		p.Addr = u.Path
		return nil
	}
	db := strings.Trim(u.Path, "/")
	u.Path, u.RawPath = "", ""
	if db == "" {
		return nil // not "/", which some clients take for a database without a number
	}
	if !isDatabase(db) {
		return errors.New("database: want a number from 0, as in " + p.Scheme + "://host:6379/0; if this is a part of the user name or password, write a slash in them as %2F")
	}
	u.Path = "/" + db
	p.DB, _ = strconv.Atoi(db)
	return nil
}

func (f Form) checkParams(p *Parts) error {
	raw := p.URL.RawQuery
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("parameters: write name=value&name=value, with a percent sign followed by two hexadecimal digits")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		param, ok := f.lookup(p.Scheme, name)
		if !ok {
			// The "name" may be what follows a question mark, or an ampersand, in
			// a password. Then an @ follows, or there is no value.
			if !plainName.MatchString(name) || !strings.Contains(raw, name+"=") || strings.Contains(raw, "@") ||
				query.Has("password") && name != "password" {
				return errors.New("parameters: one is unknown; if it is a part of the user name or password, percent-encode all but letters and digits in them")
			}
			return fmt.Errorf("parameter %q: %s:// does not know it; there are %s", name, p.Scheme, strings.Join(f.names(p.Scheme), ", "))
		}
		if len(query[name]) > 1 && !param.Repeated {
			return fmt.Errorf("parameter %q: it is there twice: write it once", name)
		}
		for _, value := range query[name] {
			if param.Value.Valid != nil && !param.Value.Valid(value) {
				return fmt.Errorf("parameter %q: want %s", name, param.Value.Want)
			}
		}
	}
	p.params = query
	if p.Scheme == "unix" {
		p.DB = p.Int("db", 0)
	}
	return nil
}

// lookup returns the parameter that a DSN of that scheme may have under name.
func (f Form) lookup(scheme, name string) (Param, bool) {
	if f.Lookup != nil {
		return f.Lookup(scheme, name)
	}
	for _, p := range f.Params {
		if p.Name == name && (len(p.Schemes) == 0 || slices.Contains(p.Schemes, scheme)) {
			return p, true
		}
	}
	return Param{}, false
}

// names returns the names of the parameters that a DSN of that scheme may have.
func (f Form) names(scheme string) []string {
	var names []string
	for _, p := range f.Params {
		if _, ok := f.lookup(scheme, p.Name); ok {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
