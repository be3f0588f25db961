package protocol

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// slot is the hash slot of a Redis key as the cluster specification defines it:
// CRC16 (XMODEM) modulo 16384, of what stands between the first '{' and the
// first '}' after it, if that is not empty, or else of all of it.
func slot(key string) uint16 {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

// TestTheSlotIsThatOfTheClusterSpecification checks the oracle itself.
func TestTheSlotIsThatOfTheClusterSpecification(t *testing.T) {
	for key, want := range map[string]uint16{
		"":              0,
		"123456789":     0x31c3, // the specification's own example
		"foo":           12182,  // and what a server answers to CLUSTER KEYSLOT
		"bar":           5061,
		"{foo}bar":      12182,
		"x{foo}{bar}":   12182,
		"a}{foo}":       12182,
		"foo{bar}{zap}": 5061,
		"foo{}{bar}":    8363, // an empty tag is none
		"foo{{bar}}zap": 4015, // the tag is "{bar"
	} {
		if got := slot(key); got != want {
			t.Errorf("slot(%q) = %d, want %d", key, got, want)
		}
	}
}

var prefixes = []string{"", "catalog:", "v:", "}", "a}b", " ", "\x00\xff", "ключ:", strings.Repeat("p", 1<<16)}

func TestKeysAreNamedByKindBeforeTheHashTag(t *testing.T) {
	for _, test := range []struct {
		prefix, key string
		want        Keys
	}{
		{"catalog:", "42", Keys{"catalog:v:{42}", "catalog:l:{42}", "catalog:s:{42}", "catalog:d:{42}", "catalog:w:{42}"}},
		{"", "42", Keys{"v:{42}", "l:{42}", "s:{42}", "d:{42}", "w:{42}"}},
		{"p", "a}b", Keys{"pv:{a}b}", "pl:{a}b}", "ps:{a}b}", "pd:{a}b}", "pw:{a}b}"}},
		{"p", "{", Keys{"pv:{{}", "pl:{{}", "ps:{{}", "pd:{{}", "pw:{{}"}},
		{"p", "{x}", Keys{"pv:{{x}}", "pl:{{x}}", "ps:{{x}}", "pd:{{x}}", "pw:{{x}}"}},
		{"p", "\x00\r\n\xff", Keys{"pv:{\x00\r\n\xff}", "pl:{\x00\r\n\xff}", "ps:{\x00\r\n\xff}", "pd:{\x00\r\n\xff}", "pw:{\x00\r\n\xff}"}},
	} {
		if diff := cmp.Diff(test.want, NewKeys(test.prefix, test.key)); diff != "" {
			t.Errorf("NewKeys(%q, %q) (-want +got):\n%s", test.prefix, test.key, diff)
		}
		if got := ValueKey(test.prefix, test.key); got != test.want.Value {
			t.Errorf("ValueKey(%q, %q) = %q, want %q", test.prefix, test.key, got, test.want.Value)
		}
	}
}

func TestOnlyAnEmptyKeyOrOneThatStartsWithABraceIsRefused(t *testing.T) {
	for _, key := range []string{"", "}", "}x", "}{x}"} {
		err := CheckKey(key)
		if !errors.Is(err, ErrKey) || errors.Is(err, ErrPrefix) {
			t.Errorf("CheckKey(%q) = %v, want ErrKey", key, err)
			continue
		}
		for _, part := range []string{Quote(key), "; "} { // the value, and what to do
			if !strings.Contains(err.Error(), part) {
				t.Errorf("CheckKey(%q) = %v, want it to say %q", key, err, part)
			}
		}
	}
	for _, key := range []string{"42", " ", "{", "{}", "{x}", "a}", "\x00", "\xff", "\n}", strings.Repeat("}", 1<<16)[1:] + "x"} {
		if err := CheckKey("k" + key); err != nil {
			t.Errorf("CheckKey(%.40q) = %v", "k"+key, err)
		}
		if key[0] == '}' {
			continue
		}
		if err := CheckKey(key); err != nil {
			t.Errorf("CheckKey(%.40q) = %v", key, err)
		}
	}
}

func TestOnlyAPrefixWithAnOpeningBraceIsRefused(t *testing.T) {
	for _, prefix := range []string{"{", "a{b", "{a}", "a}{"} {
		err := CheckPrefix(prefix)
		if !errors.Is(err, ErrPrefix) || errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "'{'") || !strings.Contains(err.Error(), Quote(prefix)) {
			t.Errorf("CheckPrefix(%q) = %v, want ErrPrefix, the prefix and what is wrong with it", prefix, err)
		}
	}
	for _, prefix := range prefixes {
		if err := CheckPrefix(prefix); err != nil {
			t.Errorf("CheckPrefix(%.40q) = %v", prefix, err)
		}
	}
}

// FuzzKeys checks the rule that lets a script touch all keys of one key: they
// share a slot, and no two of them are the same, nor those of another key.
func FuzzKeys(f *testing.F) {
	for _, prefix := range prefixes {
		for _, key := range []string{"42", "{", "{}", "}", "a}b", "{a}{b}", "", "\x00", "\xff{"} {
			f.Add(prefix, key, key+"x")
		}
	}
	f.Add("p", "a", "{a}")
	f.Add("pv:", "a", "a")
	f.Fuzz(func(t *testing.T, prefix, key, other string) {
		wantPrefix := !strings.Contains(prefix, "{")
		if err := CheckPrefix(prefix); (err == nil) != wantPrefix {
			t.Fatalf("CheckPrefix(%q) = %v", prefix, err)
		}
		wantKey := key != "" && !strings.HasPrefix(key, "}")
		if err := CheckKey(key); (err == nil) != wantKey {
			t.Fatalf("CheckKey(%q) = %v", key, err)
		}
		if !wantPrefix || !wantKey {
			return
		}
		k := NewKeys(prefix, key)
		names := []string{k.Value, k.Lease, k.Stale, k.Drop, k.Wake}
		seen := map[string]bool{}
		tag, _, _ := strings.Cut(key, "}")
		for _, name := range names {
			if slot(name) != slot(k.Value) || slot(name) != slot("{"+tag+"}") {
				t.Errorf("%q is in slot %d, %q in slot %d", name, slot(name), k.Value, slot(k.Value))
			}
			if seen[name] {
				t.Errorf("%q is the name of two kinds", name)
			}
			seen[name] = true
			if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, "{"+key+"}") {
				t.Errorf("%q does not hold prefix and key", name)
			}
		}
		if other == key || CheckKey(other) != nil {
			return
		}
		o := NewKeys(prefix, other)
		for _, name := range []string{o.Value, o.Lease, o.Stale, o.Drop, o.Wake} {
			if seen[name] {
				t.Errorf("%q is a name of both %q and %q", name, key, other)
			}
		}
	})
}

func TestLongKeysAreCutInMessages(t *testing.T) {
	for key, want := range map[string]string{
		"":                       `""`,
		"a\x00\"b":               `"a\x00\"b"`,
		strings.Repeat("k", 128): `"` + strings.Repeat("k", 128) + `"`,
		strings.Repeat("k", 129): `"` + strings.Repeat("k", 128) + `"... (129 bytes)`,
	} {
		if got := Quote(key); got != want {
			t.Errorf("Quote = %s, want %s", got, want)
		}
	}
	if got := Quote(strings.Repeat("\xff", 64<<10)); len(got) > 1000 || !utf8.ValidString(got) {
		t.Errorf("Quote of a long binary key has %d bytes", len(got))
	}
}
