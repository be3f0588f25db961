package redigo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestADSNBecomesAPool(t *testing.T) {
	for dsn, want := range map[string]struct {
		size           int
		idle, lifetime time.Duration
	}{
		"redis://h":    {64, 4 * time.Minute, 0},
		"REDIS://h:1/": {64, 4 * time.Minute, 0},
		"valkey://:p@[::1]:6380/2?pool_size=7&idle_timeout=1s&max_conn_lifetime=2s&client_name=n": {7, time.Second, 2 * time.Second},
		"valkeys://h?skip_verify=1&dial_timeout=1s&read_timeout=1s&write_timeout=1s":              {64, 4 * time.Minute, 0},
		"unix:///run/valkey.sock?db=4": {64, 4 * time.Minute, 0},
	} {
		p, err := parseDSN(dsn)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if p.MaxActive != want.size || p.MaxIdle != want.size || !p.Wait || p.IdleTimeout != want.idle || p.MaxConnLifetime != want.lifetime {
			t.Errorf("%s: %+v; want %+v", dsn, p, want)
		}
	}
}

func TestAConnectionIsSetUpAsTheDSNSays(t *testing.T) {
	s := serve(t, answer("+OK\r\n"))
	e, err := driver.Open("redigo", "redis://u:p%20w@"+s.Addr+"/3?client_name=n")
	if err != nil {
		t.Fatal(err)
	}
	defer e.(driver.Closer).Close()
	if _, err := eval(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"AUTH", "u", "p w"}, {"CLIENT", "SETNAME", "n"}, {"SELECT", "3"}}
	if diff := cmp.Diff(want, s.Commands()[:3]); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestABadDSNIsAnErrorThatSaysWhatIsWrong(t *testing.T) {
	tests := []struct{ dsn, want string }{
		{"", "no scheme"},
		{"localhost:6379", "no scheme"},
		{"http://h", `unknown scheme "http"`},
		{"a@b://h", "unknown scheme: "},
		{"redis://", "host: it is missing"},
		{"redis://:1", "host: it is missing"},
		{"redis://u:p@/0", "host: it is missing"},
		{"redis://h#x", "%23"},
		{"redis://u:p w@h", "user name or password"},
		{"redis://u:%zz@h", "user name or password"},
		{"redis://u:p/w@h", "host or port: "},
		{"redis://u:1/w@h", "database: "},
		{"redis://u:1?w@h", "parameters: one is unknown"},
		{"redis://h:port", "host or port: "},
		{"redis://h:0", "port: "},
		{"redis://h:65536", "port: "},
		{"redis://a b:1", "host or port: "},
		{"redis://a,b", "host: want one"},
		{"redis://[::1", "host or port: "},
		{"redis://h/x", "database: "},
		{"redis://h/-1", "database: "},
		{"redis://h/99999999999", "database: "},
		{"redis://h/1/2", "database: "},
		{"redis://h/%zz", "path: "},
		{"redis://u@h", "user name or password: a user name needs"},
		{"redis://h?db=1", `parameter "db": redis:// does not know it`},
		{"redis://h?pool_size=0", `parameter "pool_size": want a number from 1`},
		{"unix:///s?colour=red", "; there are client_name, db, dial_timeout, "},
		{"valkeys://h?colour=red", ", read_timeout, skip_verify, write_timeout"},
		{"unix:///s?db=x", `parameter "db": want`},
		{"unix://", "path: it is empty"},
		{"unix://host/s", "host: a unix socket has none"},
		{"redis://h?a;b", "parameters: write"},
		{"redis://h?a=%zz", "parameters: write"},
		{"redis://h?colour=red", `parameter "colour": redis:// does not know it; there are client_name, dial_timeout, idle_timeout, max_conn_lifetime, pool_size, read_timeout, write_timeout`},
		{"redis://h?pool_size=2&pool_size=3", `parameter "pool_size": it is there twice`},
		{"redis://h?skip_verify=true", `parameter "skip_verify": redis:// does not know it`},
		{"rediss://h?skip_verify=maybe", `parameter "skip_verify": want true or false`},
		{"redis://h?dial_timeout=5parsecs", `parameter "dial_timeout": want a duration`},
		{"redis://h?write_timeout=-1s", `parameter "write_timeout": want a duration`},
		{"redis://h?client_name=a%20b", `parameter "client_name": want`},
	}
	for _, tt := range tests {
		t.Run(tt.dsn, func(t *testing.T) {
			_, err := parseDSN(tt.dsn)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want an error with %q", err, tt.want)
			}
		})
	}
}

// places are where a password, the %s, may stand, rightly or by mistake.
var places = []string{
	"redis://user:%s@host:6379/0", "redis://:%s@host", "redis://%s@host", "rediss://user:%s@host:x/0",
	"redis://user:%s@host:99999", "redis://user:%s@host/db", "redis://user:%s@host?colour=red", "redis://user:%s@host?pool_size=x",
	"redis://user:%s", "redis://host/%s", "redis://host:%s", "%s@redis://host", "user:%s@host:6379", "redis:/user:%s@host", "redis//:%s@host",
	"http://user:%s@host", "unix://user:%s@/socket", "unix://user:%s@host/socket", "unix://:%s@",
	"redis://host?pool_size=%s", "redis://host?dial_timeout=%s", "redis://host?client_name=%s&x=1", "rediss://host?skip_verify=%s",
	"redis://host#%s", "redis://host/0#%s", "redis://user:%s@host1,host2",
	"redis://a:1?addr=user:%s@b:2", "redis://user:%s@a:1/7?client_name=",
}

func parseError(dsn string) error {
	_, err := parseDSN(dsn)
	return err
}

func TestAnErrorNeverPrintsAPassword(t *testing.T) { adaptertest.NoPassword(t, places, parseError) }

// FuzzDSN looks for a way to make an error print a password.
func FuzzDSN(f *testing.F) { adaptertest.FuzzPassword(f, places, parseError) }
