package goredis

import "context"

// GetBytes implements [driver.BytesGetter].
func (e getter) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	return e.getBytes(ctx, key)
}

// GetBytes implements [driver.BytesGetter].
func (e getBounder) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	return e.getBytes(ctx, key)
}

// getBytes returns the bytes of the reply: go-redis makes them for it, and keeps
// them in the command alone.
func (e evaler) getBytes(ctx context.Context, key string) ([]byte, bool, error) {
	cmd, err := e.get(ctx, key)
	if cmd == nil {
		return nil, false, err
	}
	v, err := cmd.Bytes()
	return v, err == nil, err
}
