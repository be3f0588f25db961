package glide

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valkey-io/valkey-glide/go/v2/config"

	"github.com/leasecache/leasecache/internal/adaptertest"
)

func TestADSNBecomesTheOptionsOfAClient(t *testing.T) {
	host := func(h string, p int) config.NodeAddress { return config.NodeAddress{Host: h, Port: p} }
	tests := []struct {
		dsn  string
		want options
	}{
		{"redis://h", options{hosts: []config.NodeAddress{host("h", 6379)}}},
		{"valkey://h:1", options{hosts: []config.NodeAddress{host("h", 1)}}},
		{"REDIS://h:1/", options{hosts: []config.NodeAddress{host("h", 1)}}},
		{"redis://[::1]:6380/2", options{hosts: []config.NodeAddress{host("::1", 6380)}, db: 2}},
		{"redis://u:p%20w%40%2F@h:1/3?dial_timeout=1s&request_timeout=2s&client_name=n", options{hosts: []config.NodeAddress{host("h", 1)}, user: "u", password: "p w@/", db: 3, dialTimeout: time.Second, requestTimeout: 2 * time.Second, clientName: "n"}},
		{"redis://:a@b@h", options{hosts: []config.NodeAddress{host("h", 6379)}, password: "a@b"}},
		{"rediss://h:1", options{hosts: []config.NodeAddress{host("h", 1)}, tls: true}},
		{"valkeys://h:1?skip_verify=true&addr=b:2&addr=[::1]:3&cluster=true", options{hosts: []config.NodeAddress{host("h", 1), host("b", 2), host("::1", 3)}, tls: true, skipVerify: true, cluster: true}},
	}
	for _, tt := range tests {
		t.Run(tt.dsn, func(t *testing.T) {
			got, err := parseDSN(tt.dsn)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.dialTimeout == 0 {
				tt.want.dialTimeout, tt.want.requestTimeout = 5*time.Second, 5*time.Second
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			// The client takes them.
			one, err := got.config().ToProtobuf()
			if err != nil {
				t.Fatal(err)
			}
			many, err := got.clusterConfig().ToProtobuf()
			if err != nil {
				t.Fatal(err)
			}
			for kind, p := range map[bool]interface {
				GetDatabaseId() uint32
				GetRequestTimeout() uint32
				GetConnectionTimeout() uint32
				GetClientName() string
				GetClusterModeEnabled() bool
			}{false: one, true: many} {
				if p.GetClusterModeEnabled() != kind || int(p.GetDatabaseId()) != got.db || p.GetClientName() != got.clientName ||
					time.Duration(p.GetRequestTimeout())*time.Millisecond != got.requestTimeout ||
					time.Duration(p.GetConnectionTimeout())*time.Millisecond != got.dialTimeout {
					t.Errorf("cluster %v: the client got %v", kind, p)
				}
			}
			for _, p := range []string{one.String(), many.String()} {
				if strings.Contains(p, "InsecureTls") != got.skipVerify || strings.Contains(p, "SecureTls") != (got.tls && !got.skipVerify) ||
					got.password != "" && !strings.Contains(p, "authentication_info") {
					t.Errorf("the client got %v", p)
				}
			}
		})
	}
}

func TestABadDSNIsAnErrorThatSaysWhatIsWrong(t *testing.T) {
	adaptertest.BadDSNs(t, parseDSN, map[string]string{
		"redis://h?db=1":                      `parameter "db": redis:// does not know it`,
		"unix:///s":                           "scheme unix: glide for Go has no unix sockets",
		"redis://h?protocol=2":                `parameter "protocol": redis:// does not know it`,
		"redis://h?cluster=x":                 `parameter "cluster": want true or false`,
		"redis://h?cluster=true&cluster=true": `parameter "cluster": it is there twice`,
		"redis://h?request_timeout=-1s":       `parameter "request_timeout": want a duration`,
		"redis://h?request_timeout=1us":       `parameter "request_timeout": want a duration`,
		"redis://h?request_timeout=1000h":     `parameter "request_timeout": want a duration`,
		"redis://user@h":                      "user name or password: a user name needs a password",
		"redis://h?client_name=a%20b":         `parameter "client_name": want`,
		"redis://h?addr=b":                    `parameter "addr": want host:port`,
		"redis://h?addr=u:p@b:2":              `parameter "addr": want host:port`,
	})
}

const secret = adaptertest.Secret

// places are where a password may stand in a DSN for this client only.
var places = []string{
	"redis://user:%s@host?cluster=x", "redis://host?cluster=%s",
}

func TestAnErrorNeverPrintsAPassword(t *testing.T) { adaptertest.NoPassword(t, parseDSN, places...) }

// FuzzDSN looks for a way to make an error print a password.
func FuzzDSN(f *testing.F) { adaptertest.FuzzPassword(f, parseDSN, places...) }
