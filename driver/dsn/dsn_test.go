package dsn_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/driver/dsn"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

// form has all that a Form can have, but for Lookup.
var form = dsn.Form{
	Schemes:      []string{"redis", "rediss", "valkeys", "unix", "rediss+cluster"},
	MoreHosts:    "further ones go into the parameter addr",
	NeedPassword: true,
	Params: []dsn.Param{
		{Name: "write_timeout", Value: dsn.Duration()}, // not sorted
		{Name: "addr", Value: dsn.Addr(), Schemes: []string{"redis", "rediss+cluster"}, Repeated: true},
		{Name: "any"},
		{Name: "client_name", Value: dsn.Word("a name without spaces")},
		{Name: "db", Value: dsn.Database(), Schemes: []string{"unix"}},
		{Name: "dial_timeout", Value: dsn.Duration()},
		{Name: "pool_size", Value: dsn.Size()},
		{Name: "skip_verify", Value: dsn.Bool(), Schemes: []string{"rediss", "valkeys"}},
	},
}

func TestTheParts(t *testing.T) {
	type parts struct {
		Scheme, User, Password, Addr string
		DB                           int
		TLS                          bool
		URL                          string
	}
	for in, want := range map[string]parts{
		"redis://h":                     {Scheme: "redis", Addr: "h:6379", URL: "redis://h"},
		"REDIS://h:1/":                  {Scheme: "redis", Addr: "h:1", URL: "redis://h:1"},
		"redis://[::1]:6380/2":          {Scheme: "redis", Addr: "[::1]:6380", DB: 2, URL: "redis://[::1]:6380/2"},
		"redis://h/3/?pool_size=1":      {Scheme: "redis", Addr: "h:6379", DB: 3, URL: "redis://h/3?pool_size=1"},
		"redis://u:p%20w%40%2F@h":       {Scheme: "redis", User: "u", Password: "p w@/", Addr: "h:6379", URL: "redis://u:p%20w%40%2F@h"},
		"redis://:a@b@h":                {Scheme: "redis", Password: "a@b", Addr: "h:6379", URL: "redis://:a%40b@h"},
		"rediss://h":                    {Scheme: "rediss", TLS: true, Addr: "h:6379", URL: "rediss://h"},
		"valkeys://h":                   {Scheme: "valkeys", TLS: true, Addr: "h:6379", URL: "valkeys://h"},
		"rediss+cluster://h":            {Scheme: "rediss+cluster", TLS: true, Addr: "h:6379", URL: "rediss+cluster://h"},
		"unix:///run/valkey.sock":       {Scheme: "unix", Addr: "/run/valkey.sock", URL: "unix:///run/valkey.sock"},
		"unix://u:p@/run/a@b.sock?db=4": {Scheme: "unix", User: "u", Password: "p", Addr: "/run/a@b.sock", DB: 4, URL: "unix://u:p@/run/a@b.sock?db=4"},
	} {
		t.Run(in, func(t *testing.T) {
			p, err := form.Parse(in)
			if err != nil {
				t.Fatal(err)
			}
			got := parts{p.Scheme, p.User, p.Password, p.Addr, p.DB, p.TLS, p.URL.String()}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheParameters(t *testing.T) {
	given, err := form.Parse("valkeys://h?any=a%20b&dial_timeout=2s&pool_size=7&skip_verify=1")
	if err != nil {
		t.Fatal(err)
	}
	several, err := form.Parse("redis://h?addr=b:1&addr=c:2")
	if err != nil {
		t.Fatal(err)
	}
	type params struct {
		Any     string
		Dial    time.Duration
		Size    int
		Skip    bool
		Further []string
	}
	for name, tt := range map[string]struct {
		p    *dsn.Parts
		want params
	}{
		"that are there":     {given, params{Any: "a b", Dial: 2 * time.Second, Size: 7, Skip: true}},
		"that are not there": {several, params{Dial: time.Minute, Size: 64, Further: []string{"b:1", "c:2"}}},
	} {
		got := params{tt.p.Get("any"), tt.p.Duration("dial_timeout", time.Minute), tt.p.Int("pool_size", 64), tt.p.Bool("skip_verify"), tt.p.All("addr")}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("parameters %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestABadDSNIsAnErrorThatSaysWhatIsWrong(t *testing.T) {
	adaptertest.BadDSNs(t, form.Parse, map[string]string{
		"h":                    "no scheme: write redis://, rediss://, valkeys://, unix:// or rediss+cluster://",
		"http://u:p@h":         `unknown scheme "http": write redis://, rediss://,`,
		"secret1://h":          "unknown scheme: write redis://",
		"redis://a,b":          "host: want one; further ones go into the parameter addr",
		"redis://u@h":          "user name or password: a user name needs a password",
		"unix://":              "path: it is empty",
		"unix:///":             "path: it is empty",
		"unix://host/s":        "host: a unix socket has none",
		"unix:///s?db=x":       `parameter "db": want a number from 0`,
		"unix:///s?colour=red": `parameter "colour": unix:// does not know it; there are any, client_name, db, dial_timeout, pool_size, write_timeout`,
		"redis://h?colour=red": `parameter "colour": redis:// does not know it; there are addr, any, client_name, dial_timeout, pool_size, write_timeout`,
		"redis://h?db=1":       `parameter "db": redis:// does not know it`,
		"rediss://h?addr=b:1":  `parameter "addr": rediss:// does not know it`,
		"redis://h?any=1&any=": `parameter "any": it is there twice`,
		"redis://h?colour":     "parameters: one is unknown",
		"redis://h?co%20lour=": "parameters: one is unknown",
		"redis://h?9=":         "parameters: one is unknown",
		"redis://u:p,w/x@h":    "host or port: ",
	})
}

func TestValues(t *testing.T) {
	for name, tt := range map[string]struct {
		value     dsn.Value
		good, bad []string
	}{
		"duration": {dsn.Duration(), []string{"1ns", "500ms", "1h30m"}, []string{"", "0s", "-1s", "5", "5parsecs"}},
		"bool":     {dsn.Bool(), []string{"true", "false", "1", "0"}, []string{"", "maybe", "yes"}},
		"size":     {dsn.Size(), []string{"1", "65535"}, []string{"", "0", "-1", "65536", "x"}},
		"database": {dsn.Database(), []string{"0", "15", "2147483647"}, []string{"", "-1", "2147483648", "x"}},
		"word":     {dsn.Word("a name"), []string{"a", "a-b:c"}, []string{"", "a b", "a\r", "a\n"}},
		"addr":     {dsn.Addr(), []string{"h:1", "[::1]:65535"}, []string{"", "h", ":1", "h:0", "h:x", "u@h:1", "a/b:1"}},
	} {
		for _, s := range tt.good {
			if !tt.value.Valid(s) {
				t.Errorf("%s: %q is refused", name, s)
			}
		}
		for _, s := range tt.bad {
			if tt.value.Valid(s) {
				t.Errorf("%s: %q is taken", name, s)
			}
		}
	}
}

func TestAnAdapterCanAskItsClientAboutParameters(t *testing.T) {
	asking := dsn.Form{
		Schemes: []string{"redis", "rediss"},
		Params:  []dsn.Param{{Name: "listed"}, {Name: "tls_listed"}},
		Lookup: func(scheme, name string) (dsn.Param, bool) {
			switch name {
			case "tls_listed":
				return dsn.Param{}, scheme == "rediss"
			case "listed", "unlisted":
				return dsn.Param{Value: dsn.Size(), Repeated: true}, true
			}
			return dsn.Param{}, false
		},
	}
	for in, want := range map[string]string{
		"redis://h?listed=1&unlisted=2&unlisted=3": "",
		"rediss://h?tls_listed=x":                  "",
		"redis://h?tls_listed=x":                   `dsn: parameter "tls_listed": redis:// does not know it; there are listed`,
		"redis://h?unlisted=1&unlisted=x":          `dsn: parameter "unlisted": want a number from 1 to 65535`,
		"redis://a,b":                              "dsn: host: want one",
	} {
		got := ""
		if _, err := asking.Parse(in); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got the error %q; want %q", in, got, want)
		}
	}
}

// places are where a password may stand in a DSN of form only.
var places = []string{
	"redis://user:%s@host?pool_size=x", "redis://host?pool_size=%s", "unix://user:%s@/s?db=x", "unix:///s?db=%s",
	"rediss+cluster://user:%s@a:1?addr=b:2", "rediss+cluster://a:1?addr=user:%s@b:2", "rediss+cluster://user:%s@a:1/x",
	"redis://a:1?password=%s", "redis://a:1?any=&password=%s",
}

func TestPartsPrintNoPassword(t *testing.T) {
	for in, want := range map[string]string{
		"redis://user:secret@host:6380/1": "redis://host:6380",
		"unix://:secret@/run/s.sock":      "unix:///run/s.sock",
	} {
		p, err := dsn.Form{Schemes: []string{"redis", "unix"}}.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"%v", "%+v", "%s", "%#v"} {
			for _, v := range []any{p, *p} {
				if got := fmt.Sprintf(verb, v); got != want {
					t.Errorf("%s of a %T prints %q; want %q", verb, v, got, want)
				}
			}
		}
	}
}

func TestAnErrorNeverPrintsAPassword(t *testing.T) {
	adaptertest.NoPassword(t, form.Parse, places...)
}

// FuzzDSN looks for a way to make an error print a password.
func FuzzDSN(f *testing.F) { adaptertest.FuzzPassword(f, form.Parse, places...) }
