package redigo

import (
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
	adaptertest.BadDSNs(t, parseDSN, map[string]string{
		"redis://u@h":                       "user name or password: a user name needs",
		"redis://h?db=1":                    `parameter "db": redis:// does not know it`,
		"redis://h?pool_size=0":             `parameter "pool_size": want a number from 1`,
		"unix:///s?colour=red":              "; there are client_name, db, dial_timeout, ",
		"valkeys://h?colour=red":            ", read_timeout, skip_verify, write_timeout",
		"unix:///s?db=x":                    `parameter "db": want`,
		"unix://":                           "path: it is empty",
		"unix://host/s":                     "host: a unix socket has none",
		"redis://h?colour=red":              `parameter "colour": redis:// does not know it; there are client_name, dial_timeout, idle_timeout, max_conn_lifetime, pool_size, read_timeout, write_timeout`,
		"redis://h?pool_size=2&pool_size=3": `parameter "pool_size": it is there twice`,
		"redis://h?write_timeout=-1s":       `parameter "write_timeout": want a duration`,
		"redis://h?client_name=a%20b":       `parameter "client_name": want`,
	})
}

// places are where a password may stand in a DSN for this client only.
var places = []string{
	"redis://user:%s@host?pool_size=x", "redis://host?pool_size=%s",
}

func TestAnErrorNeverPrintsAPassword(t *testing.T) { adaptertest.NoPassword(t, parseDSN, places...) }

// FuzzDSN looks for a way to make an error print a password.
func FuzzDSN(f *testing.F) { adaptertest.FuzzPassword(f, parseDSN, places...) }
