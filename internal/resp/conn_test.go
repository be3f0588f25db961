package resp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// connTo returns a client whose commands are answered with what reply returns: raw bytes, or "" to close.
func connTo(t *testing.T, reply func(args []string) string) *Conn {
	t.Helper()
	client, server := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer server.Close()
		r := bufio.NewReader(server)
		for {
			args, _, err := ReadCommand(r)
			if err != nil {
				return
			}
			out := reply(args)
			if out == "" {
				return
			}
			if _, err := io.WriteString(server, out); err != nil {
				return
			}
		}
	})
	c := NewConn(client)
	t.Cleanup(func() {
		c.Close()
		wg.Wait()
	})
	return c
}

func TestDoReturnsTheReply(t *testing.T) {
	c := connTo(t, func(args []string) string { return string(AppendValue(nil, bulk(strings.Join(args, ",")))) })
	large := strings.Repeat("x", 1<<20)
	for _, arg := range []string{"a", large, "b"} {
		if v, err := c.Do("ECHO", arg); err != nil || v.Str != "ECHO,"+arg {
			t.Errorf("the reply to %.10q is %.20q, error %v", arg, v.Str, err)
		}
	}
}

func TestDoReturnsAnErrorReplyAndGoesOn(t *testing.T) {
	c := connTo(t, func(args []string) string {
		return map[string]string{
			"SIMPLE": "-ERR no\r\n", "BULK": "!6\r\nERR no\r\n", "NESTED": "*1\r\n-ERR no\r\n",
		}[args[0]]
	})
	for _, name := range []string{"SIMPLE", "BULK"} {
		if _, err := c.Do(name); !errors.Is(err, Error("ERR no")) {
			t.Errorf("the error is %v, want ERR no", err)
		}
	}
	if v, err := c.Do("NESTED"); err != nil || !errors.Is(v.List[0].Err(), Error("ERR no")) {
		t.Errorf("the reply is %+v, error %v, want a list with an error", v, err)
	}
}

func TestDoSkipsPushMessages(t *testing.T) {
	c := connTo(t, func([]string) string { return ">1\r\n+invalidate\r\n:1\r\n" })
	for range 2 {
		if v, err := c.Do("GET"); err != nil || v.Int != 1 {
			t.Errorf("the reply is %+v, error %v, want 1", v, err)
		}
	}
}

func TestDoStopsForGoodWhenTheConnectionFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply string
		want  error
	}{
		{"the server closes", "", io.EOF},
		{"the reply is cut short", "$5\r\nab", os.ErrDeadlineExceeded},
		{"the reply is not RESP", "hello\r\n", ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent := 0
			var c *Conn
			c = connTo(t, func([]string) string {
				sent++
				if errors.Is(tt.want, os.ErrDeadlineExceeded) {
					c.SetDeadline(time.Unix(1, 0))
				}
				return tt.reply
			})
			for range 2 {
				if _, err := c.Do("GET"); !errors.Is(err, tt.want) {
					t.Errorf("the error is %v, want %v", err, tt.want)
				}
				c.SetDeadline(time.Time{})
			}
			c.Close()
			if sent != 1 {
				t.Errorf("%d commands were sent, want 1", sent)
			}
		})
	}
}

func TestDoFailsWithoutHangingWhenTheConnIsClosed(t *testing.T) {
	received, done := make(chan struct{}), make(chan struct{})
	c := connTo(t, func([]string) string { close(received); <-done; return "" })
	go func() {
		<-received
		c.Close()
	}()
	if _, err := c.Do("GET"); err == nil {
		t.Error("Do returned no error on a closed connection")
	}
	close(done)
}

func TestConcurrentCallsGetTheirOwnReplies(t *testing.T) {
	c := connTo(t, func(args []string) string { return string(AppendValue(nil, bulk(args[1]))) })
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			arg := strings.Repeat("x", i)
			for range 20 {
				if v, err := c.Do("ECHO", arg); err != nil || v.Str != arg {
					t.Errorf("the reply to %q is %q, error %v", arg, v.Str, err)
				}
			}
		})
	}
	wg.Wait()
}
