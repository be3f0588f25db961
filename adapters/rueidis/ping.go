package rueidis

import (
	"context"

	"github.com/redis/rueidis"
)

// Ping implements [driver.Pinger]. In a cluster it asks any of the nodes.
func (e evaler) Ping(ctx context.Context) error {
	_, err := e.do(ctx, e.bound.context(ctx), func() rueidis.Completed {
		return e.client.B().Arbitrary("PING").Build()
	})
	return err
}
