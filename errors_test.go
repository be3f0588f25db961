package leasecache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

var sentinels = map[string]error{
	"ErrNotFound": ErrNotFound, "ErrKey": ErrKey, "ErrPrefix": ErrPrefix, "ErrTTL": ErrTTL, "ErrUnavailable": ErrUnavailable,
	"ErrOverloaded": ErrOverloaded, "ErrLeaseLost": ErrLeaseLost, "ErrLoadTimeout": ErrLoadTimeout, "ErrClosed": ErrClosed,
}

func TestSentinelsBeginWithThePackageAndAreDistinct(t *testing.T) {
	for name, err := range sentinels {
		if !strings.HasPrefix(err.Error(), "leasecache: ") {
			t.Errorf("%s is %q, want it to begin with the package", name, err)
		}
		for other, e := range sentinels {
			if name != other && errors.Is(err, e) {
				t.Errorf("%s is %s", name, other)
			}
		}
	}
	if !errors.Is(ErrLoadTimeout, context.DeadlineExceeded) {
		t.Error("ErrLoadTimeout is not a passed deadline")
	}
}

func TestAPanicErrorHasTheValueAndTheStack(t *testing.T) {
	cause := fmt.Errorf("wrapped: %w", io.EOF)
	for _, test := range []struct {
		name  string
		value any
		is    error
		print string
	}{
		{"string", "no such row", nil, "no such row"},
		{"error", cause, io.EOF, "wrapped: EOF"},
		{"number", 42, nil, "42"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := error(&PanicError{Value: test.value, Stack: []byte("goroutine 1 [running]")})
			if want := "leasecache: the loader panicked: " + test.print + "\n\ngoroutine 1 [running]"; err.Error() != want {
				t.Errorf("it prints %q, want %q", err, want)
			}
			if got := errors.Is(err, io.EOF); got != (test.is != nil) {
				t.Errorf("it is the value's error: %v", got)
			}
			if p, ok := errors.AsType[*PanicError](fmt.Errorf("wrapped: %w", err)); !ok || p.Value != test.value {
				t.Error("it cannot be reached when wrapped")
			}
		})
	}
}

func TestAnInvalidateErrorNamesTheFirstKeysAndCountsTheRest(t *testing.T) {
	keys := func(n int) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprint("key", i))
		}
		return keys
	}
	const ten = `"key0", "key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9"`
	for _, test := range []struct {
		name string
		keys []string
		want string
	}{
		{"one", keys(1), `"key0"`},
		{"ten", keys(10), ten},
		{"eleven", keys(11), ten + ", and 1 more"},
		{"many", keys(1000), ten + ", and 990 more"},
		{"binary", []string{"a\x00\xff"}, `"a\x00\xff"`},
		{"long", []string{strings.Repeat("k", 64<<10)}, `"` + strings.Repeat("k", 128) + `"... (65536 bytes)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := error(&InvalidateError{Keys: test.keys, Err: io.EOF})
			if want := "leasecache: not invalidated, may still be cached: " + test.want + ": EOF"; err.Error() != want {
				t.Errorf("it prints %.400s\nwant %.400s", err, want)
			}
			if !errors.Is(err, io.EOF) {
				t.Error("the first key's error cannot be reached")
			}
			if e, ok := errors.AsType[*InvalidateError](fmt.Errorf("wrapped: %w", err)); !ok || len(e.Keys) != len(test.keys) {
				t.Error("not all keys can be reached")
			}
		})
	}
}

// clientError is an error of the client's own type.
type clientError struct{ error }

func TestTheErrorOfAStepWrapsAllThatCallersAskFor(t *testing.T) {
	reply := driver.ParseServerError("READONLY You can't write against a read only replica.", clientError{io.EOF})
	for _, test := range []struct {
		name        string
		err         error
		unavailable bool
		is          []error
	}{
		{"a reply for now", reply, true, []error{reply}},
		{"a broken connection", clientError{io.EOF}, true, nil},
		{"not sent", driver.NotSent(clientError{io.EOF}), true, []error{driver.ErrNotSent}},
		{"a passed deadline", fmt.Errorf("%w: %w", context.DeadlineExceeded, clientError{io.EOF}), true, []error{context.DeadlineExceeded}},
		{"a reply for good", driver.ParseServerError("OOM no", clientError{io.EOF}), false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := fmt.Errorf("wrapped: %w", &stepError{step: "fill", key: "k", err: test.err})
			if errors.Is(err, ErrUnavailable) != test.unavailable {
				t.Errorf("%v is ErrUnavailable: %v", err, !test.unavailable)
			}
			for _, is := range test.is {
				if !errors.Is(err, is) {
					t.Errorf("%v is not %v", err, is)
				}
			}
			if _, ok := errors.AsType[clientError](err); !ok {
				t.Errorf("the client's own error cannot be reached in %v", err)
			}
		})
	}
}

func TestAnErrorReplyComesWithWhatToDo(t *testing.T) {
	for _, test := range []struct{ reply, want string }{
		{"NOAUTH Authentication required.", "user and password"},
		{"WRONGPASS invalid username-password pair", "user and password"},
		{"NOPERM No permissions to run the 'eval' command", "docs/protocol.md"},
		{"WRONGTYPE Operation against a key", "choose a prefix"},
		{"OOM command not allowed when used memory > 'maxmemory'.", "maxmemory"},
		{"READONLY You can't write against a read only replica.", "point it at the primary"},
		{"MOVED 3999 127.0.0.1:6381", "use a cluster client"},
		{"ASK 3999 127.0.0.1:6381", "use a cluster client"},
		{"TRYAGAIN Multiple keys request during rehashing of slot", "is being migrated"},
		{"CROSSSLOT Keys in request don't hash to the same slot", "conformance"},
		{"BUSY Redis is busy running a script.", "SCRIPT KILL"},
		{"LOADING Redis is loading the dataset in memory", "try again later"},
		{"CLUSTERDOWN The cluster is down", "CLUSTER INFO"},
		{"MASTERDOWN Link with MASTER is down", "primary"},
		{"MISCONF Redis is configured to save RDB snapshots", "snapshot"},
		{"ERR unknown command 'EVALSHA'", "Redis 7.0 or later, or Valkey"},
		{"ERR ACL failure in script: NOPERM", "docs/protocol.md"},
		{"ERR The user executing the script can't run this command or subcommand script: x", "docs/protocol.md"},
		{"ERR Write commands not allowed after non deterministic commands.", "too old"},
		{"ERR max number of clients reached", "maxclients"},
		{"ERR Can not execute a write command 'set' while the cluster is down and readonly script: on @user_script:38.", "CLUSTER INFO"},
		{"REDIRECT 127.0.0.1:6379", "primary"},
	} {
		err := &stepError{step: "read", key: "k", err: driver.ParseServerError(test.reply, nil)}
		text := err.Error()
		if !strings.HasPrefix(text, `leasecache: read "k": `+test.reply+"; ") {
			t.Errorf("the error is %q, want step, key, reply and what to do", text)
		}
		if _, advice, _ := strings.Cut(text, test.reply); !strings.Contains(advice, test.want) {
			t.Errorf("%q advises %q, want it to say %q", test.reply, advice, test.want)
		}
	}
	for _, err := range []error{io.EOF, fmt.Errorf("client: %w", io.EOF)} {
		if text := (&stepError{step: "read", key: "k", err: err}).Error(); !strings.Contains(text, err.Error()+"; the server closed the connection") || !strings.Contains(text, "maxclients") {
			t.Errorf("the error is %q, want it to say why a server closes a connection", text)
		}
	}
	for _, err := range []error{
		errBroken, context.DeadlineExceeded, driver.ParseServerError("ERR something else", nil),
		driver.ParseServerError("NEWCODE text", nil), errors.New("OOM is no reply"),
	} {
		if got, want := (&stepError{step: "read", key: "k", err: err}).Error(), `leasecache: read "k": `+err.Error(); got != want {
			t.Errorf("it prints %q, want %q and no advice", got, want)
		}
	}
}

func TestEveryCodeForNowHasAdviceOrExplainsItself(t *testing.T) {
	plain := map[string]bool{"NOREPLICAS": true, "UNKILLABLE": true, "FAILOVER": true}
	for code := range transient {
		if hints[code] == "" && !plain[code] {
			t.Errorf("nothing says what to do about %s", code)
		}
	}
}

func TestAReplyOfAnotherFormIsNoOutage(t *testing.T) {
	_, err := protocol.ParseDrop(driver.Str("OK"))
	step := &stepError{step: "drop", key: "k", err: err, unknown: true}
	if errors.Is(step, ErrUnavailable) || !errors.Is(step, protocol.ErrReply) {
		t.Errorf("%v: want ErrReply, and not ErrUnavailable", step)
	}
}

func TestNamesOfSourcesAndOutcomes(t *testing.T) {
	for source, want := range map[Source]string{0: "none", Hit: "hit", Loaded: "loaded", Joined: "joined", Stale: "stale", NearHit: "near", NearHit + 1: "invalid", 255: "invalid"} {
		if got := source.String(); got != want {
			t.Errorf("Source(%d) prints %q, want %q", uint8(source), got, want)
		}
	}
	for outcome, want := range map[LoadOutcome]string{
		0: "none", LoadAccepted: "accepted", LoadRejected: "rejected", LoadPresent: "present",
		LoadFillFailed: "fill failed", LoadNotStored: "not stored", LoadFailed: "failed", LoadFailed + 1: "invalid", 255: "invalid",
	} {
		if got := outcome.String(); got != want {
			t.Errorf("LoadOutcome(%d) prints %q, want %q", uint8(outcome), got, want)
		}
	}
}

func TestOnlyAResultThatTheServerHasIsCached(t *testing.T) {
	for _, test := range []struct {
		res  Result[string]
		want bool
	}{
		{Result[string]{}, false},
		{Result[string]{Source: Hit}, true},
		{Result[string]{Source: Loaded}, true},
		{Result[string]{Source: Joined}, true},
		{Result[string]{Source: Loaded, Uncached: LeaseLost}, false},
		{Result[string]{Source: Stale, Uncached: StaleCopy}, false},
	} {
		if got := test.res.Cached(); got != test.want {
			t.Errorf("%+v is cached: %v, want %v", test.res, got, test.want)
		}
	}
}
