package glide

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valkey-io/valkey-glide/go/v2/config"
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
		{"redis://h/1/2", "database: "},
		{"redis://h/%zz", "path: "},
		{"redis://h?db=1", `parameter "db": redis:// does not know it`},
		{"unix:///s", "scheme unix: glide for Go has no unix sockets"},
		{"redis://h?protocol=2", `parameter "protocol": redis:// does not know it`},
		{"redis://h?cluster=x", `parameter "cluster": want true or false`},
		{"redis://h?cluster=true&cluster=true", `parameter "cluster": it is there twice`},
		{"redis://h?request_timeout=-1s", `parameter "request_timeout": want a duration`},
		{"redis://h?request_timeout=1us", `parameter "request_timeout": want a duration`},
		{"redis://h?request_timeout=1000h", `parameter "request_timeout": want a duration`},
		{"redis://user@h", "user name or password: a user name needs a password"},
		{"redis://h?a;b", "parameters: write"},
		{"redis://h?a=%zz", "parameters: write"},
		{"redis://h?colour=red", `parameter "colour": redis:// does not know it`},
		{"redis://h?skip_verify=true", `parameter "skip_verify": redis:// does not know it`},
		{"rediss://h?skip_verify=maybe", `parameter "skip_verify": want true or false`},
		{"redis://h?dial_timeout=5parsecs", `parameter "dial_timeout": want a duration`},
		{"redis://h?client_name=a%20b", `parameter "client_name": want`},
		{"redis://h?addr=b", `parameter "addr": want host:port`},
		{"redis://h?addr=u:p@b:2", `parameter "addr": want host:port`},
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

// secret is the part of a password that tests look for in errors.
const secret = "s3cr3t"

// places are where a password, the %s, may stand, rightly or by mistake.
var places = []string{
	"redis://user:%s@host:6379/0", "redis://:%s@host", "redis://%s@host", "rediss://user:%s@host:x/0",
	"redis://user:%s@host:99999", "redis://user:%s@host/db", "redis://user:%s@host?colour=red", "redis://user:%s@host?cluster=x",
	"redis://user:%s", "redis://host/%s", "redis://host:%s", "%s@redis://host", "user:%s@host:6379", "redis:/user:%s@host", "redis//:%s@host",
	"http://user:%s@host", "unix://user:%s@/socket", "unix://user:%s@host/socket", "unix://:%s@",
	"redis://host?cluster=%s", "redis://host?dial_timeout=%s", "redis://host?client_name=%s&x=1", "rediss://host?skip_verify=%s",
	"redis://host#%s", "redis://host/0#%s", "redis://user:%s@host1,host2",
	"redis://user:%s@a:1?addr=b", "redis://a:1?addr=user:%s@b:2", "redis://user:%s@a:1/7?client_name=",
}

var likeParameter = regexp.MustCompile(`[?&][A-Za-z0-9_]*` + secret + `[A-Za-z0-9_]*=`)

func checkSecret(t *testing.T, password string) {
	t.Helper()
	for _, place := range places {
		dsn := fmt.Sprintf(place, password)
		if !strings.Contains(dsn, "@") && likeParameter.MatchString(dsn) {
			continue // cannot be told from the name of a parameter
		}
		if _, err := parseDSN(dsn); err != nil && strings.Contains(strings.ToLower(err.Error()), secret) {
			t.Errorf("the error for %q prints the password: %v", dsn, err)
		}
	}
}

func TestAnErrorNeverPrintsAPassword(t *testing.T) {
	for _, before := range []string{"", "a", "1", "12", "p w", "%zz", "%", "p%20", "#", "1#", "1/", "a/", "1?", "a?", "1?x=1&", "a&", "?x&", "@", "a@", "1@", ":", "[", "]", "\x00", "\n", "é", "\\", "\"", "://", "1?addr=", "a,"} {
		for _, after := range []string{"", "a", "=", "=1", " ", "%zz", "%", "#", "/", "?", "&", "&x=", "@", ":", ":1", "]", "\x7f", "\n", "é", "\\", "\"", "://", ";"} {
			checkSecret(t, before+secret+after)
		}
	}
}

// FuzzDSN looks for a way to make an error print a password.
func FuzzDSN(f *testing.F) {
	for _, s := range []string{"", "p w", "%zz", "1?a&", "1/", "a#", "x@", "1?addr=", "\x00", "://", "?protocol=a&"} {
		f.Add(s, "")
		f.Add("", s)
		f.Add(s, "=")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(strings.ToLower(before+after), secret) {
			return // the secret itself is part of the input
		}
		checkSecret(t, before+secret+after)
	})
}
