package servertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// do sends one command on a connection of its own and returns the reply: nil, an int64, a string or a []any of these. An
// error reply is an error.
func do(ctx context.Context, addr string, args ...string) (any, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// A server that is stopped or on its way down accepts and does not answer.
	deadline := time.Now().Add(5 * time.Second)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty line where a reply should be")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	case ':', '$', '*':
		n, err := strconv.ParseInt(rest, 10, 64)
		switch {
		case err != nil:
			return nil, fmt.Errorf("unexpected reply %q", line)
		case kind == ':':
			return n, nil
		case n < 0:
			return nil, nil
		case kind == '$':
			data := make([]byte, n+2)
			if _, err := io.ReadFull(r, data); err != nil {
				return nil, err
			}
			return string(data[:n]), nil
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("unexpected reply %q", line)
}

// fields asks for a text of "name:value" lines, as INFO and CLUSTER INFO return it.
func fields(ctx context.Context, addr string, args ...string) (map[string]string, error) {
	reply, err := do(ctx, addr, args...)
	if err != nil {
		return nil, err
	}
	text, ok := reply.(string)
	if !ok {
		return nil, fmt.Errorf("%s replied %v, not a text", strings.Join(args, " "), reply)
	}
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m, nil
}

// identity reads vendor and version from INFO. Valkey also reports the Redis version that it is compatible with.
func identity(info map[string]string) (vendor, version string) {
	if v := info["valkey_version"]; v != "" {
		return "valkey", v
	}
	if name := info["server_name"]; name != "" && name != "redis" {
		return name, info["redis_version"]
	}
	return "redis", info["redis_version"]
}

// until calls ok again and again until it returns nil, or until ctx ends: then the error says what was waited for and why
// it was not so.
func until(ctx context.Context, what string, ok func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		var final *finalError
		if err == nil || errors.As(err, &final) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// A finalError ends until at once: waiting cannot help.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }
