// Package protocol holds the wire format of leasecache: the names of the Redis
// keys, the record that a value is stored as, the scripts with their arguments
// and replies. It decides nothing. docs/protocol.md specifies it for other
// languages.
package protocol

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of names.
var (
	ErrKey    = errors.New("leasecache: invalid key")
	ErrPrefix = errors.New("leasecache: invalid prefix")
)

// The kinds of Redis keys that a key has. The kind goes before the hash tag, so
// that a prefix such as "catalog:v:" covers values and nothing else.
const (
	kindValue = "v:"
	kindLease = "l:"
	kindStale = "s:"
	kindDrop  = "d:"
	kindWake  = "w:" // no key, but a shard channel, which is in a slot as well
)

// Keys are the names of the Redis keys of one key, and of its channel. They
// share a hash tag, so a cluster keeps them in one slot.
type Keys struct{ Value, Lease, Stale, Drop, Wake string }

// NewKeys returns the names for key under prefix, which must have passed
// [CheckPrefix] and [CheckKey].
func NewKeys(prefix, key string) Keys {
	return Keys{
		Value: ValueKey(prefix, key),
		Lease: prefix + kindLease + "{" + key + "}",
		Stale: prefix + kindStale + "{" + key + "}",
		Drop:  prefix + kindDrop + "{" + key + "}",
		Wake:  prefix + kindWake + "{" + key + "}",
	}
}

// ValuePrefix returns what the names of all values under prefix begin with.
func ValuePrefix(prefix string) string { return prefix + kindValue }

// ValueKey returns the name of the value's Redis key alone.
func ValueKey(prefix, key string) string {
	return prefix + kindValue + "{" + key + "}"
}

// ValueKeys returns the names of the values' Redis keys of many keys. They are
// parts of one string, so that they cost one allocation.
func ValueKeys(prefix string, keys []string) []string {
	size := len(keys) * (len(prefix) + len(kindValue) + len("{}"))
	for _, key := range keys {
		size += len(key)
	}
	var b strings.Builder
	b.Grow(size)
	names := make([]string, len(keys))
	for i, key := range keys {
		start := b.Len()
		b.WriteString(prefix)
		b.WriteString(kindValue)
		b.WriteByte('{')
		b.WriteString(key)
		b.WriteByte('}')
		names[i] = b.String()[start:]
	}
	return names
}

// CheckPrefix reports whether keys under prefix share a hash tag of their own.
func CheckPrefix(prefix string) error {
	if strings.Contains(prefix, "{") {
		return fmt.Errorf("%w %q: it contains '{', which would change the hash tag; leave it out", ErrPrefix, prefix)
	}
	return nil
}

// CheckKey reports whether key makes a hash tag that is not empty. The tag ends
// at the first '}', so a key may hold braces anywhere but at its start.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w %q: it is empty; give every key at least one byte", ErrKey, key)
	case key[0] == '}':
		return fmt.Errorf("%w %s: it starts with '}', which would leave the hash tag empty; put another byte first", ErrKey, Quote(key))
	}
	return nil
}

// Quote quotes key for a message, cut where it is long.
func Quote(key string) string {
	const most = 128
	if len(key) <= most {
		return fmt.Sprintf("%q", key)
	}
	return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
}
