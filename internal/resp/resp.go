// Package resp reads and writes RESP2 and RESP3, the protocol of Redis and Valkey.
//
// It serves the conformance suite's fault proxy, test servers and control connections: it is strict about what it reads,
// keeps the bytes of a message for those who forward it, and never allocates what a length merely claims.
// RESP3's streamed strings and aggregates, which no server sends, are protocol errors.
package resp

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the type of a [Value]: the first byte of its encoding.
type Kind byte

// The kinds of values. RESP2 has the first five.
const (
	SimpleString Kind = '+'
	SimpleError  Kind = '-'
	Integer      Kind = ':'
	BulkString   Kind = '$'
	Array        Kind = '*'
	Null         Kind = '_'
	Bool         Kind = '#'
	Double       Kind = ','
	BigNumber    Kind = '('
	BulkError    Kind = '!'
	Verbatim     Kind = '='
	Map          Kind = '%'
	Set          Kind = '~'
	Push         Kind = '>'
)

// attribute is not a kind of value: it precedes one, and ends up in that value's Attrs.
const attribute Kind = '|'

// Value is one message, or one element of an aggregate.
type Value struct {
	Kind Kind

	// Null says that the value is null: RESP3's null, or RESP2's null bulk string or null array, which keep their kinds.
	Null bool

	// Int is the number of an Integer; for a Bool it is 1 or 0.
	Int int64

	// Str is the text of a string or an error. For a Double and a BigNumber it is the number as it was sent, and for a
	// Verbatim the text preceded by its format, as in "txt:hello".
	Str string

	// List has the elements of an aggregate. A Map's keys and values alternate.
	List []Value

	// Attrs has the keys and values, alternating, of the attribute that preceded the value.
	Attrs []Value
}

// Err returns the value as an [Error] if it is an error reply, otherwise nil. It does not look into aggregates.
func (v Value) Err() error {
	if v.Kind == SimpleError || v.Kind == BulkError {
		return Error(v.Str)
	}
	return nil
}

// Error is an error reply of a server: a code, a space and a message, such as "WRONGTYPE Operation against a key ...".
type Error string

// Error returns the server's text unchanged.
func (e Error) Error() string { return string(e) }

// AppendCommand appends a command, as clients send it, to dst.
func AppendCommand(dst []byte, args ...string) []byte {
	dst = appendHeader(dst, Array, len(args))
	for _, arg := range args {
		dst = appendBulk(dst, BulkString, arg)
	}
	return dst
}

// AppendValue appends the encoding of v to dst. A line break in a value that is encoded as one line becomes a space.
// It panics if v has no valid kind, or if a Map's keys and values do not come in pairs.
func AppendValue(dst []byte, v Value) []byte {
	if len(v.Attrs) > 0 {
		dst = appendList(dst, attribute, v.Attrs)
	}
	switch v.Kind {
	case SimpleString, SimpleError, Double, BigNumber:
		dst = append(dst, byte(v.Kind))
		dst = append(dst, oneLine.Replace(v.Str)...)
	case Integer:
		dst = append(dst, byte(v.Kind))
		dst = strconv.AppendInt(dst, v.Int, 10)
	case Bool:
		dst = append(dst, "#f"...)
		if v.Int != 0 {
			dst[len(dst)-1] = 't'
		}
	case Null:
		dst = append(dst, '_')
	case BulkString, BulkError, Verbatim:
		if !v.Null {
			return appendBulk(dst, v.Kind, v.Str)
		}
		dst = append(dst, "$-1"...)
	case Array, Set, Push, Map:
		if !v.Null {
			return appendList(dst, v.Kind, v.List)
		}
		dst = append(dst, "*-1"...)
	default:
		panic(fmt.Sprintf("resp: cannot encode a value of kind %q", byte(v.Kind)))
	}
	return append(dst, "\r\n"...)
}

var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

func appendHeader(dst []byte, kind Kind, n int) []byte {
	dst = append(dst, byte(kind))
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, "\r\n"...)
}

func appendBulk(dst []byte, kind Kind, s string) []byte {
	dst = appendHeader(dst, kind, len(s))
	dst = append(dst, s...)
	return append(dst, "\r\n"...)
}

func appendList(dst []byte, kind Kind, list []Value) []byte {
	n := len(list)
	if kind == Map || kind == attribute {
		if n%2 != 0 {
			panic(fmt.Sprintf("resp: %d keys and values do not make pairs", n))
		}
		n /= 2
	}
	dst = appendHeader(dst, kind, n)
	for _, v := range list {
		dst = AppendValue(dst, v)
	}
	return dst
}
