package goredis

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/internal/adaptertest"
)

// summary is what a target's options say about a DSN.
type summary struct {
	Kind                 string
	Addrs                []string
	User, Password       string
	DB                   int
	TLS                  bool
	ServerName           string
	PoolSize             int
	ReadTimeout          time.Duration
	MasterName           string
	DataUser, DataSecret string // of the primary behind sentinels
}

func summarize(t target) summary {
	var s summary
	tlsOf := func(on bool, name func() string) {
		if s.TLS = on; on {
			s.ServerName = name()
		}
	}
	switch {
	case t.single != nil:
		o := t.single
		s = summary{Kind: o.Network, Addrs: []string{o.Addr}, User: o.Username, Password: o.Password, DB: o.DB, PoolSize: o.PoolSize, ReadTimeout: o.ReadTimeout}
		tlsOf(o.TLSConfig != nil, func() string { return o.TLSConfig.ServerName })
	case t.cluster != nil:
		o := t.cluster
		s = summary{Kind: "cluster", Addrs: o.Addrs, User: o.Username, Password: o.Password, PoolSize: o.PoolSize, ReadTimeout: o.ReadTimeout}
		tlsOf(o.TLSConfig != nil, func() string { return o.TLSConfig.ServerName })
	case t.sentinel != nil:
		o := t.sentinel
		s = summary{
			Kind: "sentinel", Addrs: o.SentinelAddrs, User: o.SentinelUsername, Password: o.SentinelPassword, DB: o.DB, PoolSize: o.PoolSize,
			ReadTimeout: o.ReadTimeout, MasterName: o.MasterName, DataUser: o.Username, DataSecret: o.Password,
		}
		tlsOf(o.TLSConfig != nil, func() string { return o.TLSConfig.ServerName })
	case t.ring != nil:
		o := t.ring
		s = summary{Kind: "ring", User: o.Username, Password: o.Password, DB: o.DB, PoolSize: o.PoolSize, ReadTimeout: o.ReadTimeout}
		for name, addr := range o.Addrs {
			s.Addrs = append(s.Addrs, name+"="+addr)
		}
		tlsOf(o.TLSConfig != nil, func() string { return o.TLSConfig.ServerName })
	}
	return s
}

func TestADSNIsReadAsGoRedisReadsIt(t *testing.T) {
	tests := []struct {
		dsn  string
		want summary
	}{
		{"redis://h", summary{Kind: "tcp", Addrs: []string{"h:6379"}}},
		{"REDIS://h:1/", summary{Kind: "tcp", Addrs: []string{"h:1"}}},
		{"redis://[::1]:6380/2", summary{Kind: "tcp", Addrs: []string{"[::1]:6380"}, DB: 2}},
		{"redis://u:p%20w%40%2F@h:1/3?pool_size=7&read_timeout=300ms", summary{Kind: "tcp", Addrs: []string{"h:1"}, User: "u", Password: "p w@/", DB: 3, PoolSize: 7, ReadTimeout: 300 * time.Millisecond}},
		{"redis://:a@b@h", summary{Kind: "tcp", Addrs: []string{"h:6379"}, Password: "a@b"}},
		{"redis://h?client_name=a@b", summary{Kind: "tcp", Addrs: []string{"h:6379"}}},
		{"rediss://h:1", summary{Kind: "tcp", Addrs: []string{"h:1"}, TLS: true, ServerName: "h"}},
		{"unix:///run/valkey.sock?db=4", summary{Kind: "unix", Addrs: []string{"/run/valkey.sock"}, DB: 4}},
		{"unix://u:p@/run/a@b.sock", summary{Kind: "unix", Addrs: []string{"/run/a@b.sock"}, User: "u", Password: "p"}},

		{"redis+cluster://u:p@a:1?addr=b:2&addr=c:3&pool_size=9", summary{Kind: "cluster", Addrs: []string{"a:1", "b:2", "c:3"}, User: "u", Password: "p", PoolSize: 9}},
		{"redis+cluster://a/0", summary{Kind: "cluster", Addrs: []string{"a:6379"}}},
		{"rediss+cluster://a:1", summary{Kind: "cluster", Addrs: []string{"a:1"}, TLS: true, ServerName: "a"}},

		{"redis+sentinel://su:sp@a:1/2?master_name=main&addr=b:2&username=u&password=p", summary{Kind: "sentinel", Addrs: []string{"a:1", "b:2"}, User: "su", Password: "sp", DB: 2, MasterName: "main", DataUser: "u", DataSecret: "p"}},
		{"rediss+sentinel://a:1?master_name=main", summary{Kind: "sentinel", Addrs: []string{"a:1"}, TLS: true, ServerName: "a", MasterName: "main"}},

		{"redis+ring://u:p@a:1/2?pool_size=5&max_concurrent_dials=3", summary{Kind: "ring", Addrs: []string{"a:1=a:1"}, User: "u", Password: "p", DB: 2, PoolSize: 5}},
		{"rediss+ring://a:1", summary{Kind: "ring", Addrs: []string{"a:1=a:1"}, TLS: true, ServerName: "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.dsn, func(t *testing.T) {
			got, err := parseDSN(tt.dsn)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, summarize(got)); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			c, err := got.open()
			if err != nil {
				t.Fatal(err)
			}
			closing(t, c)
			if !readsPrimary(c) || !endsByDeadline(c) {
				t.Errorf("a %T that this package opened lacks an ability", c)
			}
		})
	}
}

func TestShardsOfARingAreNamedByTheirAddresses(t *testing.T) {
	got, err := parseDSN("rediss+ring://a:1?addr=b:2&addr=c:3")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a:1": "a:1", "b:2": "b:2", "c:3": "c:3"}
	if diff := cmp.Diff(want, got.ring.Addrs); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
	if name := got.ring.TLSConfig.ServerName; name != "" {
		t.Errorf("all shards are to show a certificate for %q, want each for its own name", name)
	}
}

func TestABadDSNIsAnErrorThatSaysWhatIsWrong(t *testing.T) {
	adaptertest.BadDSNs(t, parseDSN, map[string]string{
		"redis+http://h":                                         `unknown scheme "redis+http"`,
		"unix+ring:///s":                                         `unknown scheme "unix+ring"`,
		"rediss://?pool_size=1":                                  "host: it is missing: write rediss://localhost:6379",
		"redis+cluster://?addr=h:1":                              "host: it is missing: write redis+cluster://localhost:6379",
		"redis+sentinel://:1?master_name=m":                      "host: it is missing",
		"redis+ring:///0":                                        "host: it is missing",
		"redis://h?db=x":                                         `parameter "db"`,
		"redis+cluster://h/1":                                    "database: a cluster has only",
		"unix://":                                                "path: it is empty",
		"unix://host/s":                                          "host: a unix socket has none",
		"redis://h?colour=red":                                   `parameter "colour": redis:// does not know it; there are client_name, conn_max_idle_time, `,
		"rediss+cluster://h?colour=red":                          `parameter "colour": rediss+cluster:// does not know it; there are addr, client_name, `,
		"redis://h?pool_size=many":                               `parameter "pool_size": want a value that go-redis takes: `,
		"redis://h?pool_size=2&pool_size=many":                   `parameter "pool_size": want a value that go-redis takes: `,
		"redis://h?pool_fifo=maybe":                              `parameter "pool_fifo": want a value that go-redis takes: `,
		"redis://h?read_timeout=5parsecs":                        `parameter "read_timeout": want a value that go-redis takes: `,
		"redis://h?addr=b:2":                                     `parameter "addr": redis:// does not know it`,
		"redis+cluster://h?addr=b":                               `parameter "addr": want host:port`,
		"redis+ring://h?addr=u:p@b:2":                            `parameter "addr": want host:port`,
		"redis+cluster://h?read_only=true":                       `leave out "read_only"`,
		"redis+cluster://h?route_randomly=1":                     `leave out "read_only"`,
		"redis+sentinel://h":                                     `parameter "master_name": it is missing`,
		"redis+sentinel://h?master_name=m&replica_only=true":     `leave out "replica_only"`,
		"redis+sentinel://h?master_name=m&route_by_latency=true": `leave out "replica_only"`,
	})
}

func TestTheParametersThatAreListedAreThoseOfGoRedis(t *testing.T) {
	file, _ := runtime.FuncForPC(reflect.ValueOf(redis.ParseURL).Pointer()).FileLine(reflect.ValueOf(redis.ParseURL).Pointer())
	files, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of go-redis at %s: %v", file, err)
	}
	withheld := []string{ // see paramNames
		"idle_timeout", "max_conn_age",
		"read_only", "replica_only", "route_by_latency", "route_by_latency_tolerance", "route_randomly",
	}
	var known []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bq\.\w+\("(\w+)"\)`).FindAllSubmatch(src, -1) {
			if name := string(m[1]); !slices.Contains(withheld, name) {
				known = append(known, name)
			}
		}
	}
	slices.Sort(known)
	if diff := cmp.Diff(slices.Compact(known), paramNames); diff != "" {
		t.Errorf("parameters (-go-redis's +listed):\n%s", diff)
	}
	for dsn, want := range map[string][]string{
		"redis":          {"pool_size", "db"},
		"rediss":         {"skip_verify"},
		"redis+cluster":  {"addr", "max_redirects"},
		"redis+sentinel": {"addr", "master_name", "username"},
		"redis+ring":     {"addr", "pool_size"},
	} {
		var params []string
		for _, name := range paramNames {
			if _, ok := lookup(dsn, name); ok {
				params = append(params, name)
			}
		}
		for _, name := range want {
			if !slices.Contains(params, name) {
				t.Errorf("%s: %q lacks %q", dsn, params, name)
			}
		}
		_, kind, _ := strings.Cut(dsn, "+")
		if slices.Contains(params, "addr") != (kind != "") || slices.Contains(params, "max_redirects") != (kind == "cluster") {
			t.Errorf("%s: %q holds a parameter of another kind", dsn, params)
		}
	}
}

func TestASizeOutOfRangeIsAnError(t *testing.T) {
	for _, dsn := range []string{"redis://h?pool_size=-1", "redis+ring://h?pool_size=-1", "redis+sentinel://h?master_name=m&pool_size=-1", "redis://h?pool_size=9999999999"} {
		got, err := parseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := got.open(); err == nil || c != nil || !strings.Contains(err.Error(), "out of range") {
			t.Errorf("%s: got %v, %v; want an error that says out of range", dsn, c, err)
		}
	}
}

const secret = adaptertest.Secret

// places are where a password may stand in a DSN for this client only.
var places = []string{
	"redis://user:%s@host?pool_size=x", "redis://host?db=%s", "redis://host?pool_size=%s", "redis://host?read_timeout=%s", "redis://host?pool_fifo=%s",
	"redis+cluster://user:%s@a:1?addr=b:2", "redis+cluster://a:1?addr=user:%s@b:2", "redis+cluster://user:%s@a:1/7",
	"redis+sentinel://user:%s@a:1?master_name=m&password=%[1]s", "redis+sentinel://a:1?master_name=m&password=%s", "redis+sentinel://a:1?password=%s",
	"redis+ring://user:%s@a:1?addr=b:2", "redis+ring://a:1?addr=:%s@b:2",
}

func TestAnErrorNeverPrintsAPassword(t *testing.T) { adaptertest.NoPassword(t, parseDSN, places...) }

func TestTheClientOfADSNDoesNotPrintItsPassword(t *testing.T) {
	for _, dsn := range []string{"redis://u:" + secret + "@127.0.0.1:1?max_retries=-1", "redis+ring://u:" + secret + "@127.0.0.1:1"} {
		got, err := parseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		c, err := got.open()
		if err != nil {
			t.Fatal(err)
		}
		closing(t, c)
		_, err = eval(t.Context(), New(c))
		if err == nil || strings.Contains(fmt.Sprintf("%v %v", err, c), secret) {
			t.Errorf("got the error %v of the client %v; want one without the password", err, c)
		}
	}
}

// FuzzDSN looks for a way to make an error print a password.
func FuzzDSN(f *testing.F) { adaptertest.FuzzPassword(f, parseDSN, places...) }
