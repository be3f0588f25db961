package glide

import "context"

// GetBytes implements [driver.BytesGetter]. It copies: glide returns strings.
func (e evaler) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	v, ok, err := e.Get(ctx, key)
	return []byte(v), ok, err
}
