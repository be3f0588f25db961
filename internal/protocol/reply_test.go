package protocol

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/driver"
)

const token = Token("00112233445566778899aabbccddeeff")

var (
	list = driver.List
	num  = driver.Int
	str  = driver.Str
)

func TestTheRepliesToReadAreThoseOfTheDocument(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply driver.Reply
		token Token
		want  ReadReply
	}{
		{"nothing, and none asked for", list(num(0)), "", ReadReply{State: StateMiss}},
		{"value", list(num(1), str("v"), num(1500)), token, ReadReply{State: StateValue, Value: "v", TTL: 1500 * time.Millisecond}},
		{"value, and none asked for", list(num(1), str("v"), num(1500)), "", ReadReply{State: StateValue, Value: "v", TTL: 1500 * time.Millisecond}},
		{"empty value", list(num(1), str(""), num(1)), token, ReadReply{State: StateValue, TTL: time.Millisecond}},
		{"value without an expiry", list(num(1), str("v"), num(-1)), token, ReadReply{State: StateValue, Value: "v"}},
		{"value that ended meanwhile", list(num(1), str("v"), num(-2)), token, ReadReply{State: StateValue, Value: "v"}},
		{"value in its last millisecond", list(num(1), str("v"), num(0)), token, ReadReply{State: StateValue, Value: "v"}},
		{"value for longer than a duration can say", list(num(1), str("v"), num(math.MaxInt64)), token, ReadReply{State: StateValue, Value: "v", TTL: 9223372036854 * time.Millisecond}},
		{"lease", list(num(2), str("17")), token, ReadReply{State: StateLeased, Lease: Lease(token + ":17")}},
		{"lease and stale copy", list(num(2), str("17"), str("old")), token, ReadReply{State: StateLeased, Lease: Lease(token + ":17"), HasStale: true, Value: "old"}},
		{"lease and empty stale copy", list(num(2), str("17"), str("")), token, ReadReply{State: StateLeased, Lease: Lease(token + ":17"), HasStale: true}},
		{"stale copy", list(num(3), num(20), str("old")), token, ReadReply{State: StateStale, Left: 20 * time.Millisecond, HasStale: true, Value: "old"}},
		{"stale copy, and none asked for", list(num(3), num(20), str("old")), "", ReadReply{State: StateStale, Left: 20 * time.Millisecond, HasStale: true, Value: "old"}},
		{"wait", list(num(4), num(20)), token, ReadReply{State: StateWait, Left: 20 * time.Millisecond}},
		{"wait for a lease without an expiry", list(num(4), num(-1)), token, ReadReply{State: StateWait}},
		{"failed load", list(num(5), num(20), str("boom")), token, ReadReply{State: StateFailed, Left: 20 * time.Millisecond, Text: "boom"}},
		{"failed load that said nothing", list(num(5), num(-1), str("")), token, ReadReply{State: StateFailed}},
		{"failed load of a client that knows no bounds", list(num(5), num(20), str(strings.Repeat("\xff\n", 500))), token, ReadReply{State: StateFailed, Left: 20 * time.Millisecond, Text: strings.Repeat("?\n", 128)}},
		{"load that was not stored", list(num(6), num(20)), token, ReadReply{State: StateUnstored, Left: 20 * time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseRead(test.reply, test.token)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ParseRead(%v) (-want +got):\n%s", test.reply, diff)
			}
		})
	}
}

func TestEveryOtherReplyToReadIsAnError(t *testing.T) {
	for _, test := range []struct {
		reply driver.Reply
		token Token
	}{
		{driver.Nil(), token},
		{num(0), ""},
		{num(1), token},
		{str("OK"), token},
		{list(), ""},
		{list(driver.Nil()), ""},
		{list(str("0")), ""},
		{list(list(num(0))), ""},
		{list(num(0)), token}, // the lease was asked for
		{list(num(0), num(0)), ""},
		{list(num(1)), token},
		{list(num(1), str("v")), token},
		{list(num(1), num(7), num(5)), token},
		{list(num(1), driver.Nil(), num(5)), token},
		{list(num(1), str("v"), str("5")), token},
		{list(num(1), str("v"), num(5), num(5)), token},
		{list(num(2), str("17")), ""}, // no lease was asked for
		{list(num(2)), token},
		{list(num(2), str("")), token},
		{list(num(2), num(17)), token},
		{list(num(2), str("17"), driver.Nil()), token},
		{list(num(2), str("17"), num(1)), token},
		{list(num(2), str("17"), str("old"), str("older")), token},
		{list(num(3), num(20)), token},
		{list(num(3), str("20"), str("old")), token},
		{list(num(3), num(20), driver.Nil()), token},
		{list(num(4)), token},
		{list(num(4), str("20")), token},
		{list(num(4), num(20), str("old")), token},
		{list(num(5), num(20)), token},
		{list(num(5), str("20"), str("boom")), token},
		{list(num(5), num(20), driver.Nil()), token},
		{list(num(5), num(20), str("boom"), num(0)), token},
		{list(num(5), num(20), str("boom")), ""}, // no lease was asked for
		{list(num(6)), token},
		{list(num(6), str("20")), token},
		{list(num(6), num(20), str("boom")), token},
		{list(num(6), num(20)), ""}, // no lease was asked for
		{list(num(7), num(20)), token},
		{list(num(-1)), ""},
		{list(num(math.MaxInt64)), ""},
	} {
		got, err := ParseRead(test.reply, test.token)
		if !errors.Is(err, ErrReply) || got != (ReadReply{}) {
			t.Errorf("ParseRead(%v, %q) = %+v, %v; want ErrReply and nothing else", test.reply, test.token, got, err)
		}
	}
}

func TestTheRepliesToFillAreThoseOfTheDocument(t *testing.T) {
	for _, test := range []struct {
		reply   driver.Reply
		outcome Outcome
		ttl     time.Duration
		bad     bool
	}{
		{reply: list(num(0)), outcome: Rejected},
		{reply: list(num(1), num(1500)), outcome: Accepted, ttl: 1500 * time.Millisecond},
		{reply: list(num(2), num(20)), outcome: Present, ttl: 20 * time.Millisecond},
		{reply: list(num(2), num(-1)), outcome: Present},
		{reply: list(num(2), num(-2)), outcome: Present},
		{reply: driver.Nil(), bad: true},
		{reply: num(0), bad: true},
		{reply: num(1), bad: true},
		{reply: list(), bad: true},
		{reply: list(str("0")), bad: true},
		{reply: list(num(0), num(0)), bad: true},
		{reply: list(num(1)), bad: true},
		{reply: list(num(1), str("5")), bad: true},
		{reply: list(num(1), num(5), num(5)), bad: true},
		{reply: list(num(2)), bad: true},
		{reply: list(num(3), num(5)), bad: true},
		{reply: list(num(-1)), bad: true},
	} {
		outcome, ttl, err := ParseFill(test.reply)
		if outcome != test.outcome || ttl != test.ttl || errors.Is(err, ErrReply) != test.bad || (err != nil) != test.bad {
			t.Errorf("ParseFill(%v) = %v, %v, %v; want %v, %v, an error %v", test.reply, outcome, ttl, err, test.outcome, test.ttl, test.bad)
		}
	}
}

func TestTheRepliesOfTheOtherScriptsAreSingleNumbers(t *testing.T) {
	for _, reply := range []driver.Reply{
		num(0), num(1), num(2), num(3), num(-1), driver.Nil(), str("1"), str("OK"), list(), list(num(1)),
	} {
		n, isInt := reply.Int()
		if err := ParseOne(Delete, reply); errors.Is(err, ErrReply) == (isInt && n == 1) {
			t.Errorf("ParseOne(%v) = %v", reply, err)
		}
		freed, err := ParseRelease(reply)
		if valid := isInt && (n == 0 || n == 1); errors.Is(err, ErrReply) == valid || freed != (valid && n == 1) {
			t.Errorf("ParseRelease(%v) = %v, %v", reply, freed, err)
		}
		again, err := ParseDrop(reply)
		if valid := isInt && n >= 0 && n <= 2; errors.Is(err, ErrReply) == valid || again != (valid && n != 2) {
			t.Errorf("ParseDrop(%v) = %v, %v", reply, again, err)
		}
	}
}

// replyOf makes a reply of any shape from a fuzzer's bytes: a byte chooses the
// shape of each element, the next ones its content.
func replyOf(data []byte) driver.Reply {
	r, _ := replyFrom(data, 3)
	return r
}

func replyFrom(data []byte, depth int) (driver.Reply, []byte) {
	if len(data) == 0 {
		return driver.Nil(), nil
	}
	shape, data := data[0], data[1:]
	size := int(shape >> 2)
	switch shape & 3 {
	case 0:
		return driver.Nil(), data
	case 1:
		n := int64(size)
		switch {
		case size == 61:
			n = math.MinInt64
		case size == 62:
			n = math.MaxInt64
		case size > 50:
			n = int64(50 - size)
		}
		return num(n), data
	case 2:
		size = min(size, len(data))
		return str(string(data[:size])), data[size:]
	}
	if depth == 0 {
		return list(), data
	}
	var elems []driver.Reply
	for range size % 6 {
		var e driver.Reply
		e, data = replyFrom(data, depth-1)
		elems = append(elems, e)
	}
	return list(elems...), data
}

// form prints the shape of a reply: the number that begins it, and the kinds
// of what follows.
func form(r driver.Reply) string {
	if r.Kind() != driver.KindList {
		return r.Kind().String()
	}
	s := "list of"
	for i := range r.Len() {
		if n, ok := r.At(i).Int(); ok && i == 0 {
			s += fmt.Sprintf(" %d", n)
		} else {
			s += ", " + r.At(i).Kind().String()
		}
	}
	return s
}

func fuzzReplies(f *testing.F) {
	f.Helper()
	for _, seed := range []string{
		"", "\x01", "\x05", "\x09", "\x02", "\x07\x01", // nil, 0, 1, 2, "", {0}
		"\x0f\x05\x06v\x29",               // {1, "v", 10}
		"\x0b\x09\x0a17", "\x0f\x09\x06n", // {2, "17"}, {2, "n", nil}
		"\x0f\x0d\x29\x06v", "\x0b\x11\x29", // {3, 10, "v"}, {4, 10}
		"\x0f\x15\x29\x06v", "\x0b\x19\x29", // {5, 10, "v"}, {6, 10}
		"\x0b\x05\x29", "\x0b\x09\xf5", "\x0b\x11\xf9", // {1, 10}, {2, min}, {4, max}
	} {
		f.Add([]byte(seed))
	}
}

func FuzzParseRead(f *testing.F) {
	fuzzReplies(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := replyOf(data)
		for _, tok := range []Token{"", token} {
			want := false
			switch form(r) {
			case "list of 0":
				want = tok == ""
			case "list of 1, string, integer", "list of 3, integer, string", "list of 4, integer":
				want = true
			case "list of 2, string", "list of 2, string, string":
				nonce, _ := r.At(1).Str()
				want = tok != "" && nonce != ""
			case "list of 5, integer, string", "list of 6, integer":
				want = tok != ""
			}
			got, err := ParseRead(r, tok)
			if (err == nil) != want || err != nil && !errors.Is(err, ErrReply) {
				t.Errorf("ParseRead(%v, %q) = %+v, %v; want valid %v", r, tok, got, err, want)
			}
			if got.TTL < 0 || got.Left < 0 {
				t.Errorf("ParseRead(%v) = %+v, a time below 0", r, got)
			}
			if (got.Lease != "") != (got.State == StateLeased) {
				t.Errorf("ParseRead(%v) = %+v", r, got)
			}
		}
	})
}

func FuzzParseFill(f *testing.F) {
	fuzzReplies(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := replyOf(data)
		want := form(r) == "list of 0" || form(r) == "list of 1, integer" || form(r) == "list of 2, integer"
		did, ttl, err := ParseFill(r)
		if (err == nil) != want || err != nil && (!errors.Is(err, ErrReply) || did == Accepted || did == Present) || ttl < 0 {
			t.Errorf("ParseFill(%v) = %v, %v, %v; want valid %v", r, did, ttl, err, want)
		}
	})
}

func FuzzParseRelease(f *testing.F) {
	fuzzReplies(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := replyOf(data)
		n, ok := r.Int()
		want := ok && (n == 0 || n == 1)
		freed, err := ParseRelease(r)
		if (err == nil) != want || err != nil && (!errors.Is(err, ErrReply) || freed) {
			t.Errorf("ParseRelease(%v) = %v, %v; want valid %v", r, freed, err, want)
		}
	})
}

func FuzzParseDrop(f *testing.F) {
	fuzzReplies(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := replyOf(data)
		n, ok := r.Int()
		want := ok && n >= 0 && n <= 2
		again, err := ParseDrop(r)
		if (err == nil) != want || err != nil && (!errors.Is(err, ErrReply) || again) {
			t.Errorf("ParseDrop(%v) = %v, %v; want valid %v", r, again, err, want)
		}
	})
}

func TestAnUnexpectedReplyIsDescribedWithoutUsersValues(t *testing.T) {
	_, err := ParseRead(list(num(1), str("secret")), token)
	want := "leasecache: unexpected reply to script read: [1, string of 6 bytes]; check the driver with the conformance suite"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestCallsCarryKeysAndArgumentsInTheOrderOfTheDocument(t *testing.T) {
	k := NewKeys("p:", "k")
	all := []string{"p:v:{k}", "p:l:{k}", "p:s:{k}"}
	for _, test := range []struct {
		name string
		call Call
		want Call
	}{
		{"read", ReadCall(k, token, ReadOptions{Lease: 1500 * time.Millisecond}), Call{Read, all, []string{string(token), "1500", "0", "0"}}},
		{"read for stale copies", ReadCall(k, token, ReadOptions{Lease: time.Second, Stale: true}), Call{Read, all, []string{string(token), "1000", "1", "0"}}},
		{"refresh", ReadCall(k, token, ReadOptions{Lease: time.Second, Refresh: true}), Call{Read, all, []string{string(token), "1000", "0", "1"}}},
		{"read over a mark", ReadCall(k, token, ReadOptions{Lease: time.Second, OverMark: true}), Call{Read, all, []string{string(token), "1000", "0", "2"}}},
		{"read without a lease", ReadCall(k, "", ReadOptions{}), Call{Read, all, []string{"", "0", "0", "0"}}},
		{"fill", FillCall(k, "t:1", "v", 1999999*time.Nanosecond), Call{Fill, all, []string{"t:1", "v", "1", "p:w:{k}"}}},
		{"fill for as long as possible", FillCall(k, "t:1", "v", math.MaxInt64), Call{Fill, all, []string{"t:1", "v", "9223372036854", "p:w:{k}"}}},
		{"release", ReleaseCall(k, "t:1", NoMark, 0), Call{Release, []string{"p:l:{k}"}, []string{"t:1", "p:w:{k}", "", "0"}}},
		{"release after a failed load", ReleaseCall(k, "t:1", MarkFailed("boom"), time.Second), Call{Release, []string{"p:l:{k}"}, []string{"t:1", "p:w:{k}", "!fboom", "1000"}}},
		{"release after a load that is not stored", ReleaseCall(k, "t:1", MarkUnstored, 1500*time.Microsecond), Call{Release, []string{"p:l:{k}"}, []string{"t:1", "p:w:{k}", "!n", "1"}}},
		{"release of an unknown acquisition", ReleaseCall(k, token.Unknown(), NoMark, 0), Call{Release, []string{"p:l:{k}"}, []string{string(token) + ":", "p:w:{k}", "", "0"}}},
		{"invalidate", InvalidateCall(k, 0), Call{Invalidate, all, []string{"0", "\x00\x02", "p:w:{k}"}}},
		{"invalidate with a window", InvalidateCall(k, time.Minute), Call{Invalidate, all, []string{"60000", "\x00\x02", "p:w:{k}"}}},
		{"delete the lease", DeleteCalls(k)[0], Call{Delete, []string{"p:l:{k}"}, []string{"p:w:{k}"}}},
		{"delete the value", DeleteCalls(k)[1], Call{Delete, []string{"p:v:{k}"}, []string{""}}},
		{"drop", DropCall(k, "bad", time.Second), Call{Drop, []string{"p:v:{k}", "p:d:{k}"}, []string{"bad", "1000"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.call.Script != test.want.Script {
				t.Errorf("the script is %s", test.call.Script.Name())
			}
			if diff := cmp.Diff(test.want.Keys, test.call.Keys); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want.Args, test.call.Args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			// EVALSHA, the digest and the number of keys come first.
			if n := 3 + len(test.call.Keys) + len(test.call.Args); n > 10 {
				t.Errorf("it is a command of %d words, which a server does not read from who is not logged in", n)
			}
		})
	}
}

func TestTokensHave128BitsAndDoNotRepeat(t *testing.T) {
	seen := map[Token]bool{}
	for range 1000 {
		tok := NewToken()
		if b, err := hex.DecodeString(string(tok)); err != nil || len(b) != 16 || string(tok) != hex.EncodeToString(b) {
			t.Fatalf("the token %q is not 32 hexadecimal digits in lower case", tok)
		}
		if seen[tok] {
			t.Fatalf("the token %q came twice", tok)
		}
		seen[tok] = true
	}
}
