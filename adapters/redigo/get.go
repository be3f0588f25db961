package redigo

import (
	"context"
	"fmt"
	"unsafe"
)

// full is an evaler over a *redis.Pool, with the abilities that this allows.
// Package leasecache finds abilities by type assertion.
type full struct{ evaler }

// Get implements [driver.Getter]. It is the path of every hit.
func (e full) Get(ctx context.Context, key string) (string, bool, error) {
	v, err := e.do(ctx, "GET", []any{key}, nil)
	switch v := v.(type) {
	case []byte:
		// The client has made it for this reply, and does not keep it.
		return unsafe.String(unsafe.SliceData(v), len(v)), true, nil
	case nil:
		return "", false, err
	}
	return "", false, fmt.Errorf("redigo: GET returned a %T: want a string or nil", v)
}
