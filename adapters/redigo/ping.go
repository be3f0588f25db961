package redigo

import "context"

// Ping implements [driver.Pinger].
func (e evaler) Ping(ctx context.Context) error {
	_, err := e.do(ctx, "PING", nil, nil)
	return err
}
