package rueidis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// serverError returns the error that the server replied with as m. err is what
// the client makes of it, without the code ERR: then the next word could be
// taken for a code, so the text is that of the message.
func serverError(m rueidis.RedisMessage, err error) error {
	if text, _ := m.ToString(); text != "" {
		return driver.ParseServerError(text, err)
	}
	return driver.ParseServerError(err.Error(), err)
}

// callError sorts the error of a call without a reply: it was certainly not
// sent, or nobody knows. Hooks wrap errors, so nothing is compared with ==, and
// an error that they return may be a reply after all.
func callError(ctx, call context.Context, err error) error {
	if re, ok := errors.AsType[*rueidis.RedisError](err); ok && !re.IsNil() {
		return driver.ParseServerError(re.Error(), err)
	}
	sent := !notSent(err)
	switch _, bounded := call.(*callContext); {
	case !isOver(call) && (err == context.DeadlineExceeded || err == context.Canceled): //nolint:errorlint // what the client returns as it is
		// Callers share connections, and one that ends with the context of the
		// caller for whom it was made or used takes others with it.
		err = fmt.Errorf("rueidis: the connection ended with another call's context: %v", err) //nolint:errorlint // it is not this call's
	case bounded && isOver(call) && !isOver(ctx):
		// Lest the caller takes it for a deadline of his own.
		err = fmt.Errorf("rueidis: no reply within the bound of %v: %w", call.(*callContext).bound, err)
	}
	err = driver.CallError(ctx, err)
	if sent {
		return err
	}
	return driver.NotSent(err)
}

// isOver reports whether ctx has ended. The client's timer may run ahead of the
// context's own by a moment.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= time.Millisecond
}

// notSent reports whether the client gave up before it wrote the command.
// ErrClosing is not among these errors: calls that have been written get it too
// when the client is closed.
func notSent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	return errors.Is(err, rueidis.ErrNoSlot)
}
