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
	return asString(v), ok, err
}

// asString returns the bytes of a reply, which the client has made for it and does
// not keep.
func asString(v []byte) string { return unsafe.String(unsafe.SliceData(v), len(v)) }
