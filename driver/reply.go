package driver

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the shape of a [Reply].
type Kind uint8

// The four shapes of a reply. Scripts of this project return no other.
const (
	KindNil Kind = iota
	KindInt
	KindString
	KindList
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case KindNil:
		return "nil"
	case KindInt:
		return "integer"
	case KindString:
		return "string"
	case KindList:
		return "list"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Reply is what a script returned, in one of four shapes. The zero Reply is nil.
// It is made by [Nil], [Int], [Str] and [List], and immutable.
type Reply struct {
	kind Kind
	n    int64
	s    string
	list []Reply
}

// Nil returns the nil reply (RESP2 null bulk string or null array, RESP3 null).
func Nil() Reply { return Reply{} }

// Int returns an integer reply.
func Int(n int64) Reply { return Reply{kind: KindInt, n: n} }

// Str returns a string reply, from a bulk string or a status.
func Str(s string) Reply { return Reply{kind: KindString, s: s} }

// List returns a list reply. It keeps elems.
func List(elems ...Reply) Reply { return Reply{kind: KindList, list: elems} }

// Kind returns the shape of r.
func (r Reply) Kind() Kind { return r.kind }

// Int returns the integer, and whether r is one.
func (r Reply) Int() (n int64, ok bool) { return r.n, r.kind == KindInt }

// Str returns the string, and whether r is one.
func (r Reply) Str() (s string, ok bool) { return r.s, r.kind == KindString }

// Len returns the number of elements of a list, and 0 for other shapes.
func (r Reply) Len() int { return len(r.list) }

// At returns element i of a list, or the nil reply when there is none.
func (r Reply) At(i int) Reply {
	if i < 0 || i >= len(r.list) {
		return Reply{}
	}
	return r.list[i]
}

// String describes the shape of r for messages. It leaves contents of strings
// out: they are users' values.
func (r Reply) String() string {
	switch r.kind {
	case KindNil:
		return "nil"
	case KindInt:
		return strconv.FormatInt(r.n, 10)
	case KindString:
		return fmt.Sprintf("string of %d bytes", len(r.s))
	}
	elems := make([]string, len(r.list))
	for i, e := range r.list {
		elems[i] = e.String()
	}
	return "[" + strings.Join(elems, ", ") + "]"
}
