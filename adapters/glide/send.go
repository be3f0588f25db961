package glide

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-glide/go/v2/pipeline"
)

// sender sends one command to the primary that has the keys, and returns its
// reply as the only element of a list. A timeout of 0 is the client's own.
//
// Commands travel in batches of one, for four reasons. An error reply is an
// element of the list, and no error, so it can be told from errors of the client,
// for which glide has no types that would do. A batch goes to the primary, while
// a GET for itself may go to a replica. It is not answered from the client's own
// cache. And it has a timeout of its own, which leaves nothing behind: a call
// whose context ends leaves a goroutine that waits for the reply, and for ever
// when the client is closed meanwhile. So no context that ends gets to glide.
type sender interface {
	send(ctx context.Context, keys, command []string, timeout time.Duration) ([]any, error)
}

type standaloneClient = Client[pipeline.StandaloneBatch, pipeline.StandaloneBatchOptions]

type standalone struct{ c standaloneClient }

func (s standalone) send(ctx context.Context, _, command []string, timeout time.Duration) ([]any, error) {
	b := pipeline.NewStandaloneBatch(false).CustomCommand(command)
	o := pipeline.NewStandaloneBatchOptions()
	if timeout > 0 {
		o.WithTimeout(timeout)
	}
	return s.c.ExecWithOptions(context.WithoutCancel(ctx), *b, false, *o)
}
