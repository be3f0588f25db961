package glide

import "context"

// Ping implements [driver.Pinger]. In a cluster it asks all primaries.
func (e evaler) Ping(ctx context.Context) error {
	_, err := e.do(e.call(ctx), nil, []string{"PING"})
	return err
}
