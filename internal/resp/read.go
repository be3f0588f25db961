package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The limits of what is read. A server's own limits are the same or lower, except that it sends lists of any length.
const (
	maxDepth = 32        // aggregates inside one another
	maxBulk  = 512 << 20 // bytes of a bulk string
	maxList  = 1 << 20   // elements of an aggregate, pairs of a map, arguments of a command
	maxLine  = 1 << 20   // bytes of a line with its line break
)

// ErrProtocol is wrapped by the errors that say that the bytes read are not RESP, or exceed a limit of this package.
// What follows on the connection cannot be understood.
var ErrProtocol = errors.New("resp: protocol error")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// ReadValue reads the next message. An error reply of the server is a value, not an error. The error is io.EOF if r ends
// before the message, and io.ErrUnexpectedEOF if it ends within.
func ReadValue(r *bufio.Reader) (Value, error) {
	return (&decoder{r: r}).message()
}

// ReadRaw reads like [ReadValue] and also returns the bytes of the message, exactly as they were read.
func ReadRaw(r *bufio.Reader) (Value, []byte, error) {
	d := &decoder{r: r, keep: true}
	v, err := d.message()
	return v, d.raw, err
}

// ReadCommand reads the next command that a client sent, an array of bulk strings or an inline command, and returns its
// arguments, at least one, and its bytes exactly as they were read. Like a server it skips empty commands. Unlike a
// server it refuses quotes in inline commands. The error is as for [ReadValue].
func ReadCommand(r *bufio.Reader) (args []string, raw []byte, err error) {
	for len(args) == 0 && err == nil {
		d := &decoder{r: r, keep: true}
		args, err = d.command()
		raw = d.raw
	}
	return args, raw, err
}

// decoder reads one message.
type decoder struct {
	r    *bufio.Reader
	keep bool
	raw  []byte // what was read so far, if keep is set
}

func (d *decoder) message() (Value, error) {
	if _, err := d.r.Peek(1); err != nil {
		return Value{}, err
	}
	v, err := d.value(0)
	return v, unexpected(err)
}

func (d *decoder) value(depth int) (Value, error) {
	line, err := d.line()
	if err != nil {
		return Value{}, err
	}
	if len(line) == 0 {
		return Value{}, malformed("a value starts with a line break")
	}
	v := Value{Kind: Kind(line[0])}
	text := line[1:] // valid until the next read
	switch v.Kind {
	case SimpleString, SimpleError:
		v.Str = string(text)
	case Integer:
		if v.Int, err = strconv.ParseInt(string(text), 10, 64); err != nil {
			err = malformed("%.40q is not an integer", text)
		}
	case Double:
		v.Str = string(text)
		err = checkDouble(v.Str)
	case BigNumber:
		v.Str = string(text)
		if !isWhole(v.Str) {
			err = malformed("%.40q is not a big number", text)
		}
	case Bool:
		switch string(text) {
		case "t":
			v.Int = 1
		case "f":
		default:
			err = malformed("%.40q is not a boolean", text)
		}
	case Null:
		v.Null = true
		if len(text) > 0 {
			err = malformed("a null is followed by %.40q", text)
		}
	case BulkString, BulkError, Verbatim:
		err = d.bulk(&v, text)
	case Array, Set, Push, Map:
		v.Null, v.List, err = d.list(v.Kind, text, depth)
	case attribute:
		return d.attributed(text, depth)
	default:
		err = malformed("no value starts with %q", line[0])
	}
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

// bulk reads the text of a value whose length is given.
func (d *decoder) bulk(v *Value, length []byte) (err error) {
	if v.Null = v.Kind == BulkString && string(length) == "-1"; v.Null {
		return nil
	}
	n, err := parseLength(length, maxBulk)
	if err != nil {
		return err
	}
	if v.Str, err = d.text(n); err != nil {
		return err
	}
	if v.Kind == Verbatim && (n < 4 || v.Str[3] != ':') {
		return malformed("a verbatim string starts with %q, want three bytes and a colon", v.Str[:min(n, 4)])
	}
	return nil
}

// list reads the elements of an aggregate whose length is given. Maps and attributes have twice as many.
func (d *decoder) list(kind Kind, length []byte, depth int) (null bool, list []Value, err error) {
	if kind == Array && string(length) == "-1" {
		return true, nil, nil
	}
	n, err := parseLength(length, maxList)
	if err != nil {
		return false, nil, err
	}
	if depth == maxDepth {
		return false, nil, malformed("more than %d aggregates inside one another", maxDepth)
	}
	if kind == Map || kind == attribute {
		n *= 2
	}
	list = make([]Value, 0, min(n, 8))
	for range n {
		v, err := d.value(depth + 1)
		if err != nil {
			return false, nil, err
		}
		list = append(list, v)
	}
	return false, list, nil
}

// attributed reads an attribute whose length is given and the value that it belongs to.
func (d *decoder) attributed(length []byte, depth int) (Value, error) {
	_, attrs, err := d.list(attribute, length, depth)
	if err != nil {
		return Value{}, err
	}
	next, err := d.r.Peek(1)
	if err != nil {
		return Value{}, err
	}
	if next[0] == byte(attribute) { // checked first, as a long row of attributes would exhaust the stack
		return Value{}, malformed("an attribute is followed by another one")
	}
	v, err := d.value(depth)
	if len(attrs) > 0 {
		v.Attrs = attrs
	}
	return v, err
}

func (d *decoder) command() ([]string, error) {
	first, err := d.r.Peek(1)
	if err != nil {
		return nil, err
	}
	if first[0] != byte(Array) {
		args, err := d.inline()
		return args, unexpected(err)
	}
	args, err := d.arguments()
	return args, unexpected(err)
}

func (d *decoder) arguments() ([]string, error) {
	line, err := d.line()
	if err != nil {
		return nil, err
	}
	if string(line) == "*-1" {
		return nil, nil
	}
	n, err := parseLength(line[1:], maxList)
	if err != nil {
		return nil, err
	}
	args := make([]string, 0, min(n, 8))
	for range n {
		line, err := d.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 || line[0] != byte(BulkString) {
			return nil, malformed("an argument starts with %.40q, want a bulk string", line)
		}
		length, err := parseLength(line[1:], maxBulk)
		if err != nil {
			return nil, err
		}
		arg, err := d.text(length)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	return args, nil
}

func (d *decoder) inline() ([]string, error) {
	line, err := d.rawLine()
	if err != nil {
		return nil, err
	}
	if bytes.ContainsAny(line, `"'`) {
		return nil, malformed("an inline command has quotes: send an array of bulk strings")
	}
	return strings.Fields(string(line)), nil
}

// line reads a line and returns it without its line break. It is valid until the next read.
func (d *decoder) line() ([]byte, error) {
	line, err := d.rawLine()
	if err != nil {
		return nil, err
	}
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.IndexByte(line, '\r') >= 0 {
		return nil, malformed("a line has a carriage return or a line feed without the other")
	}
	return line, nil
}

func (d *decoder) rawLine() ([]byte, error) {
	line, err := d.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := slices.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) < maxLine {
			line, err = d.r.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > maxLine {
		return nil, malformed("a line is longer than %d bytes", maxLine)
	}
	if err != nil {
		return nil, err
	}
	if d.keep {
		d.raw = append(d.raw, line...)
	}
	return line, nil
}

// text reads n bytes and the line break after them.
func (d *decoder) text(n int) (string, error) {
	size := n + len("\r\n")
	if size <= d.r.Size() {
		chunk, err := d.r.Peek(size)
		if err != nil {
			return "", err
		}
		if d.keep {
			d.raw = append(d.raw, chunk...)
		}
		s, err := cutLineBreak(chunk)
		_, discardErr := d.r.Discard(size) // size bytes are buffered
		return s, errors.Join(err, discardErr)
	}
	// As n is only a claim, the buffer grows with what arrives.
	var buf []byte
	if d.keep {
		buf = d.raw
	}
	start := len(buf)
	for end := start + size; len(buf) < end; {
		have := len(buf)
		buf = slices.Grow(buf, min(end-have, max(have-start, 64<<10)))
		buf = buf[:min(end, cap(buf))]
		if _, err := io.ReadFull(d.r, buf[have:]); err != nil {
			return "", err
		}
	}
	if d.keep {
		d.raw = buf
	}
	return cutLineBreak(buf[start:])
}

func cutLineBreak(text []byte) (string, error) {
	n := len(text) - len("\r\n")
	if string(text[n:]) != "\r\n" {
		return "", malformed("%q follows a text of %d bytes, want a line break", text[n:], n)
	}
	return string(text[:n]), nil
}

// unexpected says that the end of the input came within a message.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseLength(text []byte, limit int) (int, error) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || len(text) > 1 && text[0] == '0' {
		return 0, malformed("%.40q is not a length", text)
	}
	if n > uint64(limit) {
		return 0, malformed("the length %d is over the limit of %d", n, limit)
	}
	return int(n), nil
}

// checkDouble accepts decimal numbers and the servers' words for those that are none.
func checkDouble(s string) error {
	switch s {
	case "inf", "-inf", "nan", "-nan":
		return nil
	}
	if _, err := strconv.ParseFloat(s, 64); err != nil || strings.Trim(s, "0123456789+-.eE") != "" {
		return malformed("%.40q is not a double", s)
	}
	return nil
}

// isWhole reports whether s is a whole number of any size.
func isWhole(s string) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	return s != "" && strings.Trim(s, "0123456789") == ""
}
