package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A value is stored as the codec wrote it, so that any client can read it with a
// GET. Only a stored value whose first byte is 0x00 is something else, by its
// second byte:
//
//	0x00 0x00  a raw value that itself begins with 0x00: drop the first byte
//	0x00 0x01  a record of a value: fields, then the payload
//	0x00 0x02  a record of "not found": fields, no payload
//
// Fields are a tag byte, the length of the content as an unsigned LEB128 varint,
// the content; a tag of 0x00 ends them. A reader skips tags of 0x80 and above
// that it does not know, and must not use a record with an unknown tag below.
const (
	mark         = "\x00"
	recordRaw    = "\x00\x00"
	recordValue  = "\x00\x01"
	fieldsEnd    = 0x00
	fieldsIgnore = 0x80
)

// RecordNotFound is how the record of a key without a value in the source begins.
const RecordNotFound = "\x00\x02"

// ErrRecord is wrapped by [Unwrap] when a stored value is not of this format.
var ErrRecord = errors.New("leasecache: malformed record")

// WrapValue returns payload as it is stored.
func WrapValue(payload string) string {
	if strings.HasPrefix(payload, mark) {
		return mark + payload
	}
	return payload
}

// NotFound returns the record of a key that has no value in the source.
func NotFound() string { return RecordNotFound + string(rune(fieldsEnd)) }

// Unwrap returns the payload of a stored value. notFound is true when it is the
// record of a key that has no value in the source.
func Unwrap(stored string) (payload string, notFound bool, err error) {
	if !strings.HasPrefix(stored, mark) {
		return stored, false, nil
	}
	switch {
	case strings.HasPrefix(stored, recordRaw):
		return stored[len(mark):], false, nil
	case strings.HasPrefix(stored, recordValue):
		payload, err = skipFields(stored[len(recordValue):])
		return payload, false, err
	case strings.HasPrefix(stored, RecordNotFound):
		rest, err := skipFields(stored[len(RecordNotFound):])
		if err == nil && rest != "" {
			err = fmt.Errorf("%w: a not-found record with %d bytes of payload", ErrRecord, len(rest))
		}
		return "", err == nil, err
	}
	return "", false, fmt.Errorf("%w: %d bytes, unknown kind", ErrRecord, len(stored))
}

// skipFields returns what follows the fields. No field has a meaning yet.
func skipFields(s string) (string, error) {
	for {
		if s == "" {
			return "", fmt.Errorf("%w: the fields do not end", ErrRecord)
		}
		tag := s[0]
		if s = s[1:]; tag == fieldsEnd {
			return s, nil
		}
		if tag < fieldsIgnore {
			return "", fmt.Errorf("%w: unknown field 0x%02x", ErrRecord, tag)
		}
		n, size := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(s)-size) {
			return "", fmt.Errorf("%w: field 0x%02x is cut short", ErrRecord, tag)
		}
		s = s[size+int(n):]
	}
}
