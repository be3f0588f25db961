package protocol

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAMarkHoldsTheBeginningOfAText(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
	}{
		{"nothing", "", ""},
		{"a sentence", "boom: the row is locked", "boom: the row is locked"},
		{"several lines", "a\nb\x00", "a\nb\x00"},
		{"letters of several bytes", "\u00e4\u20ac\U0001f600", "\u00e4\u20ac\U0001f600"},
		{"bytes that are no text", "a\xff\xfeb\xc3", "a?b?"},
		{"as much as there may be", strings.Repeat("x", 256), strings.Repeat("x", 256)},
		{"more", strings.Repeat("x", 257), strings.Repeat("x", 256)},
		{"a letter over the end", strings.Repeat("x", 255) + "\u20ac", strings.Repeat("x", 255)},
		{"a letter up to the end", strings.Repeat("x", 253) + "\u20acy", strings.Repeat("x", 253) + "\u20ac"},
		{"nothing but the ends of letters", strings.Repeat("\x80", 1000), "?"},
		{"many bytes that are no text", strings.Repeat("\xff!", 1000), strings.Repeat("?!", 128)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := MarkFailed(test.text); got != Mark("!f"+test.want) {
				t.Errorf("MarkFailed(%q) = %q, want !f and %q", test.text, got, test.want)
			}
		})
	}
}

func FuzzMarkFailed(f *testing.F) {
	for _, text := range []string{"", "boom", "\xff", strings.Repeat("\u20ac", 100)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := strings.CutPrefix(string(MarkFailed(text)), "!f")
		if !ok || len(got) > 256 || !utf8.ValidString(got) || markText(got) != got {
			t.Errorf("MarkFailed(%q) = %q: want !f and up to 256 bytes of UTF-8", text, got)
		}
		if utf8.ValidString(text) && !strings.HasPrefix(text, got) {
			t.Errorf("MarkFailed(%q) = %q: want the beginning", text, got)
		}
	})
}

func TestNoMarkLooksLikeALease(t *testing.T) {
	for _, m := range []Mark{MarkUnstored, MarkFailed(""), MarkFailed(string(NewToken()) + ":1")} {
		if m[0] != '!' {
			t.Errorf("the mark %q does not begin with an exclamation mark", m)
		}
	}
	for range 100 {
		if l := NewToken().Unknown(); l[0] == '!' {
			t.Errorf("the lease %q begins as a mark does", l)
		}
	}
}
