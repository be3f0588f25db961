package redigo

import (
	"context"
	"fmt"
)

// GetBytes implements [driver.BytesGetter]. The client makes the bytes for this
// reply, and does not keep them.
func (e full) GetBytes(ctx context.Context, key string) ([]byte, bool, error) {
	v, err := e.do(ctx, "GET", []any{key}, nil)
	switch v := v.(type) {
	case []byte:
		return v, true, nil
	case nil:
		return nil, false, err
	}
	return nil, false, fmt.Errorf("redigo: GET returned a %T: want a string or nil", v)
}
