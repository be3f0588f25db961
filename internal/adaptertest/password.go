package adaptertest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Secret is the part of a password that is looked for in errors.
const Secret = "s3cr3t"

// NoPassword fails the test if parse returns an error that prints a password.
// places are DSNs with %s, or %[1]s, where a password may stand, rightly or by
// mistake.
func NoPassword(t *testing.T, places []string, parse func(dsn string) error) {
	t.Helper()
	for _, before := range []string{"", "a", "1", "12", "p w", "%zz", "%", "p%20", "#", "1#", "1/", "a/", "1?", "a?", "1?x=1&", "a&", "?x&", "@", "a@", "1@", ":", "[", "]", "\x00", "\n", "é", "\\", "\"", "://", "1?addr=", "a,"} {
		for _, after := range []string{"", "a", "=", "=1", " ", "%zz", "%", "#", "/", "?", "&", "&x=", "@", ":", ":1", "]", "\x7f", "\n", "é", "\\", "\"", "://", ";"} {
			noPassword(t, places, parse, before+Secret+after)
		}
	}
}

// FuzzPassword looks for a way to make an error of parse print a password.
func FuzzPassword(f *testing.F, places []string, parse func(dsn string) error) {
	for _, s := range []string{"", "p w", "%zz", "1?a&", "1/", "a#", "x@", "1?addr=", "\x00", "://", "?password=a&", "?pool_size=a&", "?protocol=a&"} {
		f.Add(s, "")
		f.Add("", s)
		f.Add(s, "=")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(strings.ToLower(before+after), Secret) {
			return // the secret itself is part of the input
		}
		noPassword(t, places, parse, before+Secret+after)
	})
}

var likeParameter = regexp.MustCompile(`[?&][A-Za-z0-9_]*` + Secret + `[A-Za-z0-9_]*=`)

func noPassword(t *testing.T, places []string, parse func(dsn string) error, password string) {
	t.Helper()
	for _, place := range places {
		dsn := fmt.Sprintf(place, password)
		if !strings.Contains(dsn, "@") && likeParameter.MatchString(dsn) {
			continue // cannot be told from the name of a parameter
		}
		if err := parse(dsn); err != nil && strings.Contains(strings.ToLower(err.Error()), Secret) {
			t.Errorf("the error for %q prints the password: %v", dsn, err)
		}
	}
}
