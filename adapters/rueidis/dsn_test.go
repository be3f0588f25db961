package rueidis

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/internal/adaptertest"
)

// summary is what the options of a client say about a DSN.
type summary struct {
	Addrs          []string
	User, Password string
	DB             int
	TLS            bool
	ServerName     string
	SkipVerify     bool
	RESP2          bool
	Name           string
	Dial, Write    time.Duration
	MasterSet      string
}

func TestADSNBecomesTheOptionsOfAClient(t *testing.T) {
	tests := []struct {
		dsn  string
		want summary
	}{
		{"redis://h", summary{Addrs: []string{"h:6379"}}},
		{"valkey://h:1", summary{Addrs: []string{"h:1"}}},
		{"REDIS://h:1/", summary{Addrs: []string{"h:1"}}},
		{"redis://[::1]:6380/2", summary{Addrs: []string{"[::1]:6380"}, DB: 2}},
		{"redis://u:p%20w%40%2F@h:1/3?protocol=2&dial_timeout=1s&write_timeout=2s&client_name=n", summary{Addrs: []string{"h:1"}, User: "u", Password: "p w@/", DB: 3, RESP2: true, Dial: time.Second, Write: 2 * time.Second, Name: "n"}},
		{"redis://:a@b@h?protocol=3", summary{Addrs: []string{"h:6379"}, Password: "a@b"}},
		{"rediss://h:1", summary{Addrs: []string{"h:1"}, TLS: true, ServerName: "h"}},
		{"valkeys://h:1?skip_verify=true&addr=b:2", summary{Addrs: []string{"h:1", "b:2"}, TLS: true, SkipVerify: true}},
		{"unix:///run/valkey.sock?db=4", summary{Addrs: []string{"/run/valkey.sock"}, DB: 4}},
		{"unix://u:p@/run/a@b.sock", summary{Addrs: []string{"/run/a@b.sock"}, User: "u", Password: "p"}},
		{"redis://u:p@a:1?addr=b:2&addr=c:3", summary{Addrs: []string{"a:1", "b:2", "c:3"}, User: "u", Password: "p"}},
		{"redis://a:1/2?master_set=main&addr=b:2", summary{Addrs: []string{"a:1", "b:2"}, DB: 2, MasterSet: "main"}},
	}
	for _, tt := range tests {
		t.Run(tt.dsn, func(t *testing.T) {
			o, err := parseDSN(tt.dsn)
			if err != nil {
				t.Fatal(err)
			}
			got := summary{
				Addrs: o.InitAddress, User: o.Username, Password: o.Password, DB: o.SelectDB, RESP2: o.AlwaysRESP2, Name: o.ClientName,
				Dial: o.Dialer.Timeout, Write: o.ConnWriteTimeout, MasterSet: o.Sentinel.MasterSet,
			}
			if c := o.TLSConfig; c != nil {
				got.TLS, got.ServerName, got.SkipVerify = true, c.ServerName, c.InsecureSkipVerify
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if !o.AlwaysPipelining || !o.DisableCache {
				t.Error("want a client that always pipelines, without a cache")
			}
			if asks := o.Sentinel.TopologyRefreshInterval > 0; asks != (tt.want.MasterSet != "") {
				t.Error("want a client that asks its sentinels again and again")
			}
		})
	}
}

func TestABadDSNIsAnErrorThatSaysWhatIsWrong(t *testing.T) {
	adaptertest.BadDSNs(t, parseDSN, map[string]string{
		"redis://h?db=1":                  `parameter "db": redis:// does not know it`,
		"unix:///s?colour=red":            "; there are client_name, db, dial_timeout, protocol, write_timeout",
		"valkeys://h?colour=red":          ", protocol, skip_verify, write_timeout",
		"unix:///s?db=x":                  `parameter "db": want`,
		"unix:///s?addr=b:2":              `parameter "addr": unix:// does not know it`,
		"unix://":                         "path: it is empty",
		"unix://host/s":                   "host: a unix socket has none",
		"redis://h?colour=red":            `parameter "colour": redis:// does not know it; there are addr, client_name, dial_timeout, master_set, protocol, write_timeout`,
		"redis://h?protocol=4":            `parameter "protocol": want 2 or 3`,
		"redis://h?protocol=2&protocol=3": `parameter "protocol": it is there twice`,
		"redis://h?write_timeout=-1s":     `parameter "write_timeout": want a duration`,
		"redis://h?client_name=a%20b":     `parameter "client_name": want`,
		"redis://h?master_set=":           `parameter "master_set": want`,
		"redis://h?addr=b":                `parameter "addr": want host:port`,
		"redis://h?addr=u:p@b:2":          `parameter "addr": want host:port`,
	})
}

const secret = adaptertest.Secret

// places are where a password may stand in a DSN for this client only.
var places = []string{
	"redis://user:%s@host?protocol=x", "redis://host?protocol=%s", "redis://user:%s@a:1/7?master_set=",
}

func TestAnErrorNeverPrintsAPassword(t *testing.T) { adaptertest.NoPassword(t, parseDSN, places...) }

// FuzzDSN looks for a way to make an error print a password.
func FuzzDSN(f *testing.F) { adaptertest.FuzzPassword(f, parseDSN, places...) }
