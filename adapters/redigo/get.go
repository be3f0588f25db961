package redigo

import (
	"context"
	"unsafe"
)

// full is an evaler over a *redis.Pool, with the abilities that this allows.
// Package leasecache finds abilities by type assertion.
type full struct{ evaler }

// Get implements [driver.Getter]. It is the path of every hit.
func (e full) Get(ctx context.Context, key string) (string, bool, error) {
	v, ok, err := e.GetBytes(ctx, key)
	return unsafe.String(unsafe.SliceData(v), len(v)), ok, err
}
