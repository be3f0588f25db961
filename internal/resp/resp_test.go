package resp

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func read(s string) (Value, error) { return ReadValue(bufio.NewReader(strings.NewReader(s))) }

func bulk(s string) Value { return Value{Kind: BulkString, Str: s} }

func integer(n int64) Value { return Value{Kind: Integer, Int: n} }

// encodings are values in the form that AppendValue gives them.
var encodings = []struct {
	name string
	text string
	want Value
}{
	{"simple string", "+OK\r\n", Value{Kind: SimpleString, Str: "OK"}},
	{"empty simple string", "+\r\n", Value{Kind: SimpleString}},
	{"simple error", "-ERR no\r\n", Value{Kind: SimpleError, Str: "ERR no"}},
	{"integer", ":-42\r\n", integer(-42)},
	{"smallest integer", ":-9223372036854775808\r\n", integer(-9223372036854775808)},
	{"bulk string with line breaks", "$4\r\na\r\nb\r\n", bulk("a\r\nb")},
	{"empty bulk string", "$0\r\n\r\n", bulk("")},
	{"null bulk string", "$-1\r\n", Value{Kind: BulkString, Null: true}},
	{"array", "*2\r\n:1\r\n$1\r\nx\r\n", Value{Kind: Array, List: []Value{integer(1), bulk("x")}}},
	{"empty array", "*0\r\n", Value{Kind: Array, List: []Value{}}},
	{"null array", "*-1\r\n", Value{Kind: Array, Null: true}},
	{"null", "_\r\n", Value{Kind: Null, Null: true}},
	{"true", "#t\r\n", Value{Kind: Bool, Int: 1}},
	{"false", "#f\r\n", Value{Kind: Bool}},
	{"double", ",-1.5e3\r\n", Value{Kind: Double, Str: "-1.5e3"}},
	{"infinite double", ",-inf\r\n", Value{Kind: Double, Str: "-inf"}},
	{"not a number", ",nan\r\n", Value{Kind: Double, Str: "nan"}},
	{
		"big number", "(-3492890328409238509324850943850943825024385\r\n",
		Value{Kind: BigNumber, Str: "-3492890328409238509324850943850943825024385"},
	},
	{"bulk error", "!7\r\nERR \r\nx\r\n", Value{Kind: BulkError, Str: "ERR \r\nx"}},
	{"verbatim string", "=7\r\ntxt:abc\r\n", Value{Kind: Verbatim, Str: "txt:abc"}},
	{"map", "%1\r\n+k\r\n~1\r\n:1\r\n", Value{
		Kind: Map,
		List: []Value{{Kind: SimpleString, Str: "k"}, {Kind: Set, List: []Value{integer(1)}}},
	}},
	{"push", ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n", Value{
		Kind: Push,
		List: []Value{{Kind: SimpleString, Str: "invalidate"}, {Kind: Array, List: []Value{bulk("k")}}},
	}},
	{"attribute", "|1\r\n+ttl\r\n:5\r\n:1\r\n", Value{
		Kind: Integer, Int: 1,
		Attrs: []Value{{Kind: SimpleString, Str: "ttl"}, integer(5)},
	}},
	{"attribute of an element", "*2\r\n:1\r\n|1\r\n+ttl\r\n:5\r\n$-1\r\n", Value{Kind: Array, List: []Value{
		integer(1),
		{Kind: BulkString, Null: true, Attrs: []Value{{Kind: SimpleString, Str: "ttl"}, integer(5)}},
	}}},
	{"as many aggregates as allowed", strings.Repeat("*1\r\n", maxDepth) + ":1\r\n", nested(maxDepth)},
	{
		"bulk string larger than the buffer", "$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n",
		bulk(strings.Repeat("x", 100_000)),
	},
	{
		"line longer than the buffer", "-ERR " + strings.Repeat("x", 100_000) + "\r\n",
		Value{Kind: SimpleError, Str: "ERR " + strings.Repeat("x", 100_000)},
	},
}

func nested(depth int) Value {
	v := integer(1)
	for range depth {
		v = Value{Kind: Array, List: []Value{v}}
	}
	return v
}

func TestValuesAreReadAndAppendedInTheSameForm(t *testing.T) {
	for _, tt := range encodings {
		t.Run(tt.name, func(t *testing.T) {
			r := bufio.NewReader(strings.NewReader(tt.text + "+next\r\n"))
			got, raw, err := ReadRaw(r)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("read %+v, want %+v", got, tt.want)
			}
			if string(raw) != tt.text {
				t.Errorf("the raw bytes are %q, want %q", raw, tt.text)
			}
			if text := AppendValue(nil, tt.want); string(text) != tt.text {
				t.Errorf("appended %q, want %q", text, tt.text)
			}
			if next, err := ReadValue(r); err != nil || next.Str != "next" {
				t.Errorf("the next value is %+v, error %v", next, err)
			}
			if _, err := ReadValue(r); !errors.Is(err, io.EOF) {
				t.Errorf("the error at the end is %v, want io.EOF", err)
			}
		})
	}
}

func TestAValueThatEndsEarlyIsAnUnexpectedEOF(t *testing.T) {
	for _, tt := range encodings {
		if len(tt.text) > 1000 {
			continue
		}
		for n := 1; n < len(tt.text); n++ {
			if v, err := read(tt.text[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("reading %q: %+v, error %v, want io.ErrUnexpectedEOF", tt.text[:n], v, err)
			}
		}
	}
}

func TestMalformedValuesAreProtocolErrors(t *testing.T) {
	for _, text := range []string{
		"\r\n", "x\r\n", "+a\n", "+a\rb\r\n", ":\r\n", ":1.5\r\n", ":9223372036854775808\r\n", ": 1\r\n",
		"$\r\n", "$-2\r\n", "$+1\r\nx\r\n", "$01\r\nx\r\n", "$1x\r\nx\r\n", "$1\r\nxyz\r\n", "$?\r\n",
		"$536870913\r\n", "$99999999999999999999\r\n", "!-1\r\n", "=-1\r\n", "=3\r\ntxt\r\n", "=4\r\ntext\r\n",
		"*?\r\n", "*-2\r\n", "*1048577\r\n", "%-1\r\n", "~-1\r\n", ">-1\r\n", "%1048577\r\n",
		"_x\r\n", "#\r\n", "#x\r\n", "#true\r\n", ",\r\n", ",1_0\r\n", ",0x1p4\r\n", ",infinity\r\n", ",1e999\r\n",
		"(\r\n", "(-\r\n", "(+-1\r\n", "(12a\r\n", "|-1\r\n", "|0\r\n|0\r\n:1\r\n", strings.Repeat("|0\r\n", 1<<20),
		strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n", strings.Repeat("%1\r\n", maxDepth+1),
		"+" + strings.Repeat("x", maxLine) + "\r\n", strings.Repeat("+", 2*maxLine),
	} {
		if v, err := read(text); !errors.Is(err, ErrProtocol) {
			t.Errorf("reading %.40q: %+v, error %v, want a protocol error", text, v, err)
		}
	}
}

func TestALengthAloneAllocatesLittle(t *testing.T) {
	for _, text := range []string{
		"$536870912\r\nabc",
		"*1048576\r\n:1\r\n",
		strings.Repeat("%1048576\r\n", maxDepth),
		strings.Repeat("|1048576\r\n", maxDepth),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := ReadRaw(bufio.NewReader(strings.NewReader(text)))
		runtime.ReadMemStats(&after)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reading %.20q: error %v, want io.ErrUnexpectedEOF", text, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10 {
			t.Errorf("reading %.20q allocated %d bytes", text, n)
		}
	}
}

func TestCommandsAreReadAsSent(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n", []string{"GET", "a\r\n"}},
		{"*1\r\n$0\r\n\r\n", []string{""}},
		{"PING\r\n", []string{"PING"}},
		{"  SET  a \t b \n", []string{"SET", "a", "b"}},
	} {
		for _, skipped := range []string{"", "\r\n", "\n", "*0\r\n", "*-1\r\n", " \r\n"} {
			r := bufio.NewReader(strings.NewReader(skipped + tt.text + "NEXT\r\n"))
			args, raw, err := ReadCommand(r)
			if err != nil || !reflect.DeepEqual(args, tt.want) || string(raw) != tt.text {
				t.Errorf("reading %q: %q, raw %q, error %v", skipped+tt.text, args, raw, err)
			}
			if args, _, err := ReadCommand(r); err != nil || len(args) != 1 || args[0] != "NEXT" {
				t.Errorf("the command after %q is %q, error %v", tt.text, args, err)
			}
			if args, _, err := ReadCommand(r); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %q, error %v, want io.EOF", args, err)
			}
		}
	}
}

func TestMalformedCommandsAreErrors(t *testing.T) {
	for _, tt := range []struct {
		text string
		want error
	}{
		{"*1\r\n:1\r\n", ErrProtocol},
		{"*1\r\n\r\n", ErrProtocol},
		{"*1\r\n$-1\r\n", ErrProtocol},
		{"*1\r\n*1\r\n$1\r\nx\r\n", ErrProtocol},
		{"*\r\n", ErrProtocol},
		{"*1048577\r\n", ErrProtocol},
		{"SET a \"b c\"\r\n", ErrProtocol},
		{"*1\r\n$4\r\nPI", io.ErrUnexpectedEOF},
		{"*1\r\n", io.ErrUnexpectedEOF},
		{"PING", io.ErrUnexpectedEOF},
	} {
		if args, _, err := ReadCommand(bufio.NewReader(strings.NewReader(tt.text))); !errors.Is(err, tt.want) {
			t.Errorf("reading %q: %q, error %v, want %v", tt.text, args, err, tt.want)
		}
	}
}

func TestAppendCommandIsReadBack(t *testing.T) {
	want := []string{"SET", "a\x00\r\n", ""}
	text := AppendCommand([]byte("+OK\r\n"), want...)
	args, _, err := ReadCommand(bufio.NewReader(strings.NewReader(strings.TrimPrefix(string(text), "+OK\r\n"))))
	if err != nil || !reflect.DeepEqual(args, want) {
		t.Errorf("%q was read as %q, error %v", text, args, err)
	}
}

func TestAppendValueKeepsALineOnOneLine(t *testing.T) {
	if got := AppendValue(nil, Value{Kind: SimpleError, Str: "ERR a\r\n+OK"}); string(got) != "-ERR a  +OK\r\n" {
		t.Errorf("appended %q", got)
	}
}

func TestAppendValuePanicsOnWhatHasNoEncoding(t *testing.T) {
	for _, v := range []Value{{}, {Kind: 'x'}, {Kind: Map, List: []Value{bulk("key")}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("appending %+v did not panic", v)
				}
			}()
			AppendValue(nil, v)
		}()
	}
}

func FuzzReadValue(f *testing.F) {
	for _, tt := range encodings {
		if len(tt.text) < 1000 { // large inputs make fuzzing slow
			f.Add([]byte(tt.text))
		}
	}
	f.Add([]byte("$536870912\r\nabc"))
	f.Add([]byte("*1048576\r\n*1048576\r\n"))
	f.Add([]byte("|0\r\n+\r\n"))
	f.Add([]byte("|1\r\n+a\r\n:1\r\n|1\r\n+a\r\n:1\r\n_\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v, raw, err := ReadRaw(bufio.NewReader(strings.NewReader(string(text))))
		runtime.ReadMemStats(&after)
		// The smallest element has four bytes and becomes a Value; slices that grow are copied.
		if n, bound := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+200*len(text)); n > bound {
			t.Errorf("%d bytes of input allocated %d bytes, more than %d", len(text), n, bound)
		}
		if err != nil {
			return
		}
		if !strings.HasPrefix(string(text), string(raw)) {
			t.Errorf("the raw bytes %q are not those of the input %q", raw, text)
		}
		again := AppendValue(nil, v)
		if got, err := read(string(again)); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%+v was encoded as %q and read as %+v, error %v", v, again, got, err)
		}
	})
}

func BenchmarkReadValue(b *testing.B) {
	text := "*3\r\n$3\r\nhit\r\n$512\r\n" + strings.Repeat("x", 512) + "\r\n:60000\r\n"
	source := strings.NewReader(text)
	r := bufio.NewReader(source)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(text)
		if _, err := ReadValue(r); err != nil {
			b.Fatal(err)
		}
	}
}
