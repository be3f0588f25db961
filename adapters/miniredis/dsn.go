package miniredis

import (
	"fmt"
	"strings"
)

// parseDSN returns the name in a DSN, which is empty for a server of one's own.
// Of a DSN that it does not take it prints one character at most: people put
// the DSN of a real server here by mistake, and that may hold a password.
func parseDSN(dsn string) (name string, err error) {
	const want = `write "miniredis:" for a server of its own, or "miniredis://name" for one that is shared in the process`
	rest, ok := strings.CutPrefix(dsn, "miniredis:")
	if !ok {
		return "", fmt.Errorf(`miniredis: the DSN does not begin with "miniredis:": %s`, want)
	}
	if rest == "" {
		return "", nil
	}
	name, ok = strings.CutPrefix(rest, "//")
	if !ok {
		return "", fmt.Errorf(`miniredis: the DSN has no "//" before the name: %s`, want)
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !inName(r) }); i >= 0 {
		r := []rune(name[i:])[0]
		return "", fmt.Errorf("miniredis: the name in the DSN holds %q: it is not an address, and takes only letters, digits, dots, dashes and underscores of ASCII: %s", r, want)
	}
	return name, nil
}

func inName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}
