package protocol

import (
	"strings"
	"unicode/utf8"
)

// Mark is what the lease key holds after a load that ended without a fill, so
// that others need not repeat it at once. It begins with a byte that no token
// has, so that it is nobody's lease.
type Mark string

const (
	// NoMark leaves the lease free.
	NoMark Mark = ""
	// MarkUnstored says that a load had nothing that could be stored.
	MarkUnstored Mark = "!n"

	markFailed = "!f"
)

// maxMarkText is how much of an error's text is stored, in bytes.
const maxMarkText = 256

// MarkFailed returns the mark of a load that failed with an error of that text.
func MarkFailed(text string) Mark { return markFailed + Mark(markText(text)) }

// markText returns the beginning of text, as valid UTF-8.
func markText(text string) string {
	if n := maxMarkText; len(text) > n {
		for n > maxMarkText-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "?")
}
