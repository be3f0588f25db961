package miniredis

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/leasecache/leasecache/driver"
)

// TestScriptsFindWhatTheyRelyOn states, piece by piece, what leasecache's
// scripts take from the server, with the replies that Valkey and Redis give. A
// new version of miniredis that changes one of them fails here.
func TestScriptsFindWhatTheyRelyOn(t *testing.T) {
	for _, test := range []struct {
		name   string
		script string
		args   []string
		want   string
	}{
		// The server starts with "s" = "value" for one second, "p" = "value"
		// without a TTL, "h" a hash. "none" does not exist. The clock stands still.
		{"GET returns the value", `return redis.call('GET', 's')`, nil, `"value"`},
		{"GET of nothing is false", `return tostring(redis.call('GET', 'none'))`, nil, `"false"`},
		{"GET of nothing compares unequal to any string", `return redis.call('GET', 'none') == '' and 1 or 0`, nil, `0`},
		{"values compare byte for byte", `redis.call('SET', 'b', ARGV[1]) return redis.call('GET', 'b') == ARGV[1] and redis.call('GET', 'b') ~= ARGV[2] and 1 or 0`, []string{"\x00\xff\r\n", "\x00\xff\r"}, `1`},

		{"SET with PX given as a string sets a TTL", `redis.call('SET', 'x', 'v', 'PX', ARGV[1]) return redis.call('PTTL', 'x')`, []string{"1500"}, `1500`},
		{"SET with PX given as a number sets a TTL", `redis.call('SET', 'x', 'v', 'PX', 1500) return redis.call('PTTL', 'x')`, nil, `1500`},
		{"SET with PX takes a century", `redis.call('SET', 'x', 'v', 'PX', ARGV[1]) return redis.call('PTTL', 'x')`, []string{"3153600000000"}, `3153600000000`},
		{"SET replaces the TTL", `redis.call('SET', 's', 'v', 'PX', 9000) return redis.call('PTTL', 's')`, nil, `9000`},
		{"SET without PX removes the TTL", `redis.call('SET', 's', 'v') return redis.call('PTTL', 's')`, nil, `-1`},
		{"SET replaces a value of another type", `redis.call('SET', 'h', 'v') return redis.call('TYPE', 'h').ok`, nil, `"string"`},
		{"SET is a status", `return redis.call('SET', 'x', 'v').ok`, nil, `"OK"`},
		{"SET NX of a free key is true", `return redis.call('SET', 'x', 'v', 'NX', 'PX', 1000) and 1 or 0`, nil, `1`},
		{"SET NX of a taken key is false and changes nothing", `return {redis.call('SET', 's', 'v', 'NX', 'PX', 9000) and 1 or 0, redis.call('GET', 's'), redis.call('PTTL', 's')}`, nil, `{0 "value" 1000}`},

		{"PTTL counts milliseconds", `return redis.call('PTTL', 's')`, nil, `1000`},
		{"PTTL without a TTL is -1", `return redis.call('PTTL', 'p')`, nil, `-1`},
		{"PTTL of nothing is -2", `return redis.call('PTTL', 'none')`, nil, `-2`},
		{"PEXPIRE is 1 and sets a TTL", `return {redis.call('PEXPIRE', 'p', 250), redis.call('PTTL', 'p')}`, nil, `{1 250}`},
		{"PEXPIRE takes what PTTL gave", `return {redis.call('PEXPIRE', 'p', redis.call('PTTL', 's')), redis.call('PTTL', 'p')}`, nil, `{1 1000}`},
		{"PEXPIRE of nothing is 0", `return redis.call('PEXPIRE', 'none', 250)`, nil, `0`},
		{"PEXPIRE with 0 deletes", `return {redis.call('PEXPIRE', 's', 0), redis.call('EXISTS', 's')}`, nil, `{1 0}`},

		{"RENAME takes the TTL along", `redis.call('RENAME', 's', 'x') return {redis.call('GET', 'x'), redis.call('PTTL', 'x'), redis.call('EXISTS', 's')}`, nil, `{"value" 1000 0}`},
		{"RENAME replaces the target and its TTL", `redis.call('SET', 'x', 'old', 'PX', 9000) redis.call('RENAME', 's', 'x') return {redis.call('GET', 'x'), redis.call('PTTL', 'x')}`, nil, `{"value" 1000}`},
		{"RENAME without a TTL removes the target's", `redis.call('RENAME', 'p', 's') return redis.call('PTTL', 's')`, nil, `-1`},
		{"RENAME of nothing fails with ERR", `return redis.pcall('RENAME', 'none', 'x').err`, nil, `"ERR no such key"`},

		{"DEL takes several keys and counts those that were there", `return {redis.call('DEL', 's', 'none', 'h'), redis.call('EXISTS', 's'), redis.call('EXISTS', 'h')}`, nil, `{2 0 0}`},
		{"TYPE is a status with the name", `return {redis.call('TYPE', 's').ok, redis.call('TYPE', 'h').ok, redis.call('TYPE', 'none').ok}`, nil, `{"string" "hash" "none"}`},
		{"GETRANGE returns the first bytes", `return {redis.call('GETRANGE', 's', 0, 0), redis.call('GETRANGE', 's', 0, 1), redis.call('GETRANGE', 's', '1', '-1')}`, nil, `{"v" "va" "alue"}`},
		{"GETRANGE past the end returns what is there", `return {redis.call('GETRANGE', 's', 0, 99), redis.call('GETRANGE', 's', 99, 100)}`, nil, `{"value" ""}`},
		{"GETRANGE of nothing is the empty string", `return redis.call('GETRANGE', 'none', 0, 0)`, nil, `""`},

		{"TIME is two strings of digits", `local t = redis.call('TIME') return {type(t[1]), type(t[2]), #t}`, nil, `{"string" "string" 2}`},
		{"TIME counts from 1970 in seconds and microseconds", `return redis.call('TIME')`, nil, `{"946684800" "42"}`},
		{"microseconds can be padded", `local t = redis.call('TIME') return t[1] .. string.format('%06d', tonumber(t[2]))`, nil, `"946684800000042"`},
		{"microseconds can be padded without tonumber", `local t = redis.call('TIME') return t[1] .. string.format('%06d', t[2])`, nil, `"946684800000042"`},

		{"sha1hex is lower-case SHA-1", `return redis.sha1hex('abc')`, nil, `"a9993e364706816aba3e25717850c26c9cd0d89d"`},
		{"strings have a length in bytes", `return {#ARGV[1], #''}`, []string{"\x00é"}, `{3 0}`},
		{"string.sub cuts bytes", `return {string.sub(ARGV[1], 1, 2), string.sub(ARGV[1], 3), string.sub(ARGV[1], 9)}`, []string{"\x00\xffrest"}, `{"\x00\xff" "rest" ""}`},
		{"string.byte gives a byte", `return string.byte(ARGV[1], 1)`, []string{"\x00a"}, `0`},
		{"tonumber reads digits", `return {tonumber(ARGV[1]), tonumber(ARGV[2]) == nil and 1 or 0, tonumber('') == nil and 1 or 0}`, []string{"86400000", "x"}, `{86400000 1 1}`},
		{"math.floor and fractions", `return {tonumber('1.5') == math.floor(1.5) and 1 or 0, tonumber('2') == math.floor(2) and 1 or 0}`, nil, `{0 1}`},
		{"a missing argument is nil", `return ARGV[1] == nil and KEYS[2] == nil and 1 or 0`, nil, `1`},
		{"KEYS and ARGV count", `return {#KEYS, #ARGV}`, []string{"a", "b"}, `{1 2}`},

		{"a list keeps integers, strings and false", `return {1, 'a', false, ''}`, nil, `{1 "a" nil ""}`},
		{"a list ends at the first nil", `return {1, nil, 3}`, nil, `{1}`},
		{"an empty list is a list", `return {}`, nil, `{}`},
		{"a fraction is cut off", `return {3.99, -3.99}`, nil, `{3 -3}`},
		{"true is 1 and false is nil", `return {true, false}`, nil, `{1 nil}`},
		{"nothing is nil", `return`, nil, `nil`},

		{"pcall returns an error as a table", `local r = redis.pcall('GET', 'h') return {type(r), r.err, tostring(r.ok)}`, nil, `{"table" "WRONGTYPE Operation against a key holding the wrong kind of value" "nil"}`},
		{"a pcall that failed is no string", `return redis.pcall('GET', 'h') == ARGV[1] and 1 or 0`, []string{"value"}, `0`},
		{"a pcall that failed lets the script go on", `redis.pcall('RENAME', 'none', 'x') return 7`, nil, `7`},
		{"pcall of an unknown command lets the script go on", `redis.pcall('NOSUCHCOMMAND', 'c', 'm') return 7`, nil, `7`},
		{"PUBLISH reaches nobody", `return redis.call('PUBLISH', 'c', 'm')`, nil, `0`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(42 * time.Microsecond)
				s := New()
				defer s.Close()
				fixtures(t, s)
				if got := eval(t, s, test.script, []string{"s"}, test.args); got != test.want {
					t.Errorf("%s\nreturned %s, want %s", test.script, got, test.want)
				}
			})
		})
	}
}

func fixtures(t *testing.T, s *Server) {
	t.Helper()
	m := s.Miniredis()
	mustSet(t, m, "s", "value")
	m.SetTTL("s", time.Second)
	mustSet(t, m, "p", "value")
	m.HSet("h", "field", "value")
}

// TestScriptErrorsHaveTheirCode is about errors that reach the caller. Their
// codes are those of Valkey and Redis, the texts are miniredis's own.
func TestScriptErrorsHaveTheirCode(t *testing.T) {
	s := New()
	defer s.Close()
	fixtures(t, s)
	for _, test := range []struct {
		name, script, code, message string
	}{
		{"a failed call keeps its code", "local x = 1\n\nreturn redis.call('GET', 'h')", "WRONGTYPE", "Operation against a key"},
		{"a failed call within a function keeps its code", `local function f() return redis.call('GET', 'h') end return f()`, "WRONGTYPE", "Operation against a key"},
		{"a failed call with GETRANGE keeps its code", `return redis.call('GETRANGE', 'h', 0, 0)`, "WRONGTYPE", "Operation against a key"},
		{"a failed pcall that is returned keeps its code", `return redis.pcall('GET', 'h')`, "WRONGTYPE", "Operation against a key"},
		{"a TTL of zero", `return redis.call('SET', 'p', 'v', 'PX', '0')`, "ERR", "invalid expire time in set"},
		{"a negative TTL", `return redis.call('SET', 'p', 'v', 'PX', '-5')`, "ERR", "invalid expire time in set"},
		{"a TTL with a fraction", `return redis.call('SET', 'p', 'v', 'PX', '1.5')`, "ERR", "not an integer"},
		{"an unknown command", `return redis.call('NOSUCHCOMMAND')`, "ERR", "Unknown Redis command called from script"},
		{"error_reply with a code", `return redis.error_reply('MYCODE some text')`, "MYCODE", "some text"},
		{"error_reply with a dash", `return redis.error_reply('-MYCODE some text')`, "MYCODE", "some text"},
		{"error_reply with one word", `return redis.error_reply('text')`, "ERR", "text"},
		{"error_reply without a code", `return redis.error_reply('my own text')`, "ERR", "my own text"},
		{"a table with err", `return {err = 'MYCODE some text'}`, "MYCODE", "some text"},
		{"an error within a list", `return {1, redis.error_reply('MYCODE some text'), 2}`, "MYCODE", "some text"},
		{"an error deep within a list", `return {1, {{redis.error_reply('MYCODE some text')}}}`, "MYCODE", "some text"},
		{"a Lua error has no code of its own", `error('MYCODE some text')`, "ERR", "MYCODE some text"},
		{"a mistake in the script", `return nil + 1`, "ERR", "cannot perform add"},
		{"a script that does not compile", `return +`, "ERR", "Error compiling script"},
		{"a global variable is refused", `x = 1 return x`, "ERR", "attempted to create global variable 'x'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := s.Eval(t.Context(), driver.NewScript("test", test.script), []string{"s"}, nil)
			se, ok := errors.AsType[*driver.ServerError](err)
			if !ok {
				t.Fatalf("%s\nreturned %s, %v; want a ServerError", test.script, show(r), err)
			}
			if se.Code != test.code || !strings.Contains(se.Message, test.message) {
				t.Errorf("%s\nfailed with code %q, message %q; want code %q and a message with %q", test.script, se.Code, se.Message, test.code, test.message)
			}
			if errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%v is ErrNotSent", err)
			}
		})
	}
	if got := eval(t, s, `return redis.call('GET', KEYS[1])`, []string{"p"}, nil); got != `"value"` {
		t.Errorf("a script that failed left %s", got)
	}
}

// TestWhatAFailedScriptWroteStands is why a script must run nothing that can
// fail after its first write. It is so on every server.
func TestWhatAFailedScriptWroteStands(t *testing.T) {
	s := New()
	defer s.Close()
	fixtures(t, s)
	_, err := s.Eval(t.Context(), driver.NewScript("test", `redis.call('SET', 's', 'new') return redis.call('GET', 'h')`), []string{"s", "h"}, nil)
	if se, ok := errors.AsType[*driver.ServerError](err); !ok || se.Code != "WRONGTYPE" {
		t.Fatalf("Eval: %v, want WRONGTYPE", err)
	}
	if v, _, err := s.Get(t.Context(), "s"); v != "new" || err != nil {
		t.Errorf("Get = %q, %v", v, err)
	}
}

// TestTheClockMovesWhileAScriptRuns is a difference that scripts must stand: on
// Valkey and Redis time stands still while a script runs.
func TestTheClockMovesWhileAScriptRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		fixtures(t, s)
		s.Miniredis().Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if cmd == "PTTL" {
				time.Sleep(time.Second)
			}
			return false
		})
		want := `{"value" -2}`
		if got := eval(t, s, `return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}`, []string{"s"}, nil); got != want {
			t.Errorf("GET and PTTL returned %s, want %s", got, want)
		}
	})
}

// TestWhereMiniredisDiffers states what must not be relied on, so that it is
// noticed when it changes.
func TestWhereMiniredisDiffers(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"it has no SPUBLISH", `return redis.pcall('SPUBLISH', 'c', 'm').err`, `"ERR Unknown Redis command called from script"`},
		{"a TTL that overflows is taken, and the key is gone at once", `return {redis.call('SET', 'x', 'v', 'PX', '9223372036854775807').ok, redis.call('EXISTS', 'x')}`, `{"OK" 0}`},
		{"numbers print as integers, not as 1e+15", `return tostring(1000000000000000)`, `"1000000000000000"`},
		{"it has no bit library", `return tostring(rawget(_G, 'bit'))`, `"nil"`},
		{"it tells no version", `return tostring(redis.REDIS_VERSION)`, `"nil"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New()
				defer s.Close()
				fixtures(t, s)
				if got := eval(t, s, test.script, []string{"s"}, nil); got != test.want {
					t.Errorf("%s\nreturned %s, want %s", test.script, got, test.want)
				}
			})
		})
	}
}
