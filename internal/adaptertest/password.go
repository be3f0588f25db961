package adaptertest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Secret is the part of a password that is looked for in errors.
const Secret = "s3cr3t"

// places are DSNs with %s where a password may stand, rightly or by mistake.
var places = []string{
	"redis://user:%s@host:6379/0", "redis://:%s@host", "redis://%s@host", "rediss://user:%s@host:x/0",
	"redis://user:%s@host:99999", "redis://user:%s@host/db", "redis://user:%s@host?colour=red", "redis://user:%s@host?dial_timeout=x",
	"redis://user:%s", "redis://host/%s", "redis://host:%s", "%s@redis://host", "user:%s@host:6379", "redis:/user:%s@host", "redis//:%s@host",
	"http://user:%s@host", "unix://user:%s@/socket", "unix://user:%s@host/socket", "unix://:%s@",
	"redis://host?dial_timeout=%s", "redis://host?client_name=%s&x=1", "rediss://host?skip_verify=%s",
	"redis://host#%s", "redis://host/0#%s", "redis://user:%s@host1,host2",
	"redis://user:%s@a:1?addr=b", "redis://a:1?addr=user:%s@b:2", "redis://user:%s@a:1/7?client_name=",
}

// NoPassword fails the test if parse returns an error that prints a password. more
// are further places: DSNs with %s, or %[1]s, where a password may stand.
func NoPassword[T any](t *testing.T, parse func(dsn string) (T, error), more ...string) {
	t.Helper()
	for _, before := range []string{"", "a", "1", "12", "p w", "%zz", "%", "p%20", "#", "1#", "1/", "a/", "1?", "a?", "1?x=1&", "a&", "?x&", "@", "a@", "1@", ":", "[", "]", "\x00", "\n", "é", "\\", "\"", "://", "1?addr=", "a,"} {
		for _, after := range []string{"", "a", "=", "=1", " ", "%zz", "%", "#", "/", "?", "&", "&x=", "@", ":", ":1", "]", "\x7f", "\n", "é", "\\", "\"", "://", ";"} {
			noPassword(t, parse, more, before+Secret+after)
		}
	}
}

// FuzzPassword looks for a way to make an error of parse print a password.
// more is as for [NoPassword].
func FuzzPassword[T any](f *testing.F, parse func(dsn string) (T, error), more ...string) {
	for _, s := range []string{"", "p w", "%zz", "1?a&", "1/", "a#", "x@", "1?addr=", "\x00", "://", "?password=a&", "?pool_size=a&", "?protocol=a&"} {
		f.Add(s, "")
		f.Add("", s)
		f.Add(s, "=")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(strings.ToLower(before+after), Secret) {
			return // the secret itself is part of the input
		}
		noPassword(t, parse, more, before+Secret+after)
	})
}

var likeParameter = regexp.MustCompile(`[?&][A-Za-z0-9_]*` + Secret + `[A-Za-z0-9_]*=`)

func noPassword[T any](t *testing.T, parse func(dsn string) (T, error), more []string, password string) {
	t.Helper()
	for _, place := range slices.Concat(places, more) {
		dsn := fmt.Sprintf(place, password)
		if !strings.Contains(dsn, "@") && likeParameter.MatchString(dsn) {
			continue // cannot be told from the name of a parameter
		}
		if _, err := parse(dsn); err != nil && strings.Contains(strings.ToLower(err.Error()), Secret) {
			t.Errorf("the error for %q prints the password: %v", dsn, err)
		}
	}
}
