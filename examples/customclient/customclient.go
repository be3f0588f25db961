// Package customclient is an adapter for a client of one's own: a bare client of
// RESP2 over net.Conn. docs/adapters.md walks through it.
//
// To stay short it dials for every call. A client for production has a pool.
package customclient

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"

	"github.com/leasecache/leasecache/driver"
)

// Evaler runs scripts on the server at Addr, which is host:port.
type Evaler struct{ Addr string }

// Eval implements [driver.Evaler].
func (e Evaler) Eval(ctx context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	// Steps 2 and 6: without a connection nothing was sent. A context that is done gets none.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.Addr)
	if err != nil {
		return driver.Reply{}, driver.NotSent(driver.CallError(ctx, err))
	}
	defer conn.Close()
	// When ctx ends, what is being written or read ends with it.
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	// Step 3: the source only after NOSCRIPT, and once.
	reply, err := send(conn, "EVALSHA", s.SHA1(), keys, args)
	if se, ok := errors.AsType[*driver.ServerError](err); ok && se.Code == "NOSCRIPT" {
		reply, err = send(conn, "EVAL", s.Source(), keys, args)
	}
	// Step 6: CallError leaves a reply of the server as it is. What else fails here may have been sent.
	return reply, driver.CallError(ctx, err)
}

// send writes one command and reads its reply.
func send(conn net.Conn, name, script string, keys, args []string) (driver.Reply, error) {
	b := []byte("*" + strconv.Itoa(3+len(keys)+len(args)) + "\r\n")
	for _, word := range append(append([]string{name, script, strconv.Itoa(len(keys))}, keys...), args...) {
		b = append(b, "$"+strconv.Itoa(len(word))+"\r\n"+word+"\r\n"...)
	}
	// Where writing fails, so does reading, unless the server said why it closed the connection.
	_, _ = conn.Write(b)
	return read(bufio.NewReader(conn))
}

// read reads one reply. Step 7: one of four shapes, or an error.
func read(r *bufio.Reader) (driver.Reply, error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 {
		return driver.Reply{}, errors.Join(err, io.ErrUnexpectedEOF)
	}
	switch n, err := strconv.ParseInt(line[1:len(line)-2], 10, 64); {
	case line[0] == '+':
		return driver.Str(line[1 : len(line)-2]), nil
	case line[0] == '-':
		return driver.Reply{}, driver.ParseServerError(line[:len(line)-2], nil)
	case line[0] == ':':
		return driver.Int(n), err
	case line == "$-1\r\n" || line == "*-1\r\n":
		return driver.Nil(), nil
	case line[0] == '$' && err == nil && n >= 0:
		data := make([]byte, n+2)
		_, err = io.ReadFull(r, data)
		return driver.Str(string(data[:n])), err
	case line[0] == '*' && err == nil && n >= 0:
		elems := make([]driver.Reply, n)
		for i := int64(0); i < n && err == nil; i++ {
			elems[i], err = read(r) // an error among the elements is one of the call
		}
		return driver.List(elems...), err
	}
	return driver.Reply{}, errors.New("customclient: a reply of an unknown type, or no reply: it begins with " + strconv.Quote(line[:1]))
}
