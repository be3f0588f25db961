package resp

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// Conn is a minimal client: one command at a time on one connection. All methods may be called concurrently.
//
// A Conn reads no push messages: those that arrive with a reply are dropped. So it is not for subscriptions in RESP3,
// nor for any in RESP2, nor for commands that have no reply.
type Conn struct {
	nc net.Conn

	mu  sync.Mutex // held for a whole command and its reply
	r   *bufio.Reader
	buf []byte
	err error // why the connection can no longer be used
}

// NewConn returns a client on nc, which it owns from now on. It sends nothing by itself, so the protocol is RESP2 until
// the caller sends HELLO.
func NewConn(nc net.Conn) *Conn {
	return &Conn{nc: nc, r: bufio.NewReader(nc)}
}

// Do sends a command and returns its reply. A reply that is an error is returned as an [Error]; errors within an
// aggregate stay values. Any other error means that the outcome is unknown; the connection is closed then, and every
// further call returns the same error without sending anything.
func (c *Conn) Do(args ...string) (Value, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return Value{}, c.err
	}
	v, err := c.roundTrip(args)
	if err != nil {
		// A reply that comes late must not be taken for the reply to another command.
		c.err = err
		c.nc.Close()
		return Value{}, err
	}
	return v, v.Err()
}

func (c *Conn) roundTrip(args []string) (Value, error) {
	const keep = 64 << 10 // bytes of buffer that are kept between commands
	c.buf = AppendCommand(c.buf[:0], args...)
	_, err := c.nc.Write(c.buf)
	if cap(c.buf) > keep {
		c.buf = nil
	}
	for err == nil {
		var v Value
		if v, err = ReadValue(c.r); err == nil && v.Kind != Push {
			return v, nil
		}
	}
	return Value{}, err
}

// SetDeadline bounds the commands from now on, a running one included: past t they fail with an error that wraps
// [os.ErrDeadlineExceeded], which ends the connection. The zero time means no bound.
func (c *Conn) SetDeadline(t time.Time) error { return c.nc.SetDeadline(t) }

// Close closes the connection. A running command fails.
func (c *Conn) Close() error { return c.nc.Close() }
