package adaptertest

import (
	"strings"
	"testing"
)

// badDSNs are DSNs that are wrong for every client, with what the error has to say.
var badDSNs = map[string]string{
	"":                                "no scheme",
	"localhost:6379":                  "no scheme",
	"http://h":                        `unknown scheme "http"`,
	"a@b://h":                         "unknown scheme: ",
	"redis://":                        "host: it is missing: write redis://localhost:6379",
	"redis://:1":                      "host: it is missing",
	"redis://u:p@/0":                  "host: it is missing",
	"rediss://?dial_timeout=1s":       "host: it is missing: write rediss://localhost:6379",
	"redis://h#x":                     "%23",
	"redis://u:p w@h":                 "user name or password",
	"redis://u:%zz@h":                 "user name or password",
	"redis://u:p/w@h":                 "host or port: ",
	"redis://u:1/w@h":                 "database: ",
	"redis://u:1?w@h":                 "parameters: one is unknown",
	"redis://h:port":                  "host or port: ",
	"redis://h:0":                     "port: ",
	"redis://h:65536":                 "port: ",
	"redis://a b:1":                   "host or port: ",
	"redis://a,b":                     "host: want one; ",
	"redis://a:1,b:2":                 "host: want one; ",
	"redis://a:1,b":                   "host: want one; ",
	"redis://[::1":                    "host or port: ",
	"redis://h/x":                     "database: ",
	"redis://h/-1":                    "database: ",
	"redis://h/99999999999":           "database: ",
	"redis://h/1/2":                   "database: ",
	"redis://h/%zz":                   "path: ",
	"redis://h?a;b":                   "parameters: write",
	"redis://h?a=%zz":                 "parameters: write",
	"redis://h?colour=red":            `parameter "colour": redis:// does not know it; there are `,
	"redis://h?password=p":            `parameter "password": redis:// does not know it`,
	"redis://h?colour=red&password=p": "parameters: one is unknown",
	"redis://h?skip_verify=true":      `parameter "skip_verify": redis:// does not know it`,
	"rediss://h?skip_verify=maybe":    `parameter "skip_verify": want `,
	"redis://h?dial_timeout=5parsecs": `parameter "dial_timeout": want `,
}

// BadDSNs checks what parse says of DSNs that are wrong for every client, and of
// more that are wrong for this one, each with a part of the error.
func BadDSNs[T any](t *testing.T, parse func(dsn string) (T, error), more map[string]string) {
	for _, dsns := range []map[string]string{badDSNs, more} {
		for dsn, want := range dsns {
			t.Run(dsn, func(t *testing.T) {
				_, err := parse(dsn)
				if err == nil || !strings.HasPrefix(err.Error(), "dsn: ") || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v; want an error of a DSN with %q", err, want)
				}
			})
		}
	}
}
