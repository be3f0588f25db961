package rueidis

import (
	"context"

	"github.com/redis/rueidis"
)

// full is an evaler over a rueidis.Client, with the abilities that this allows.
// Package leasecache finds abilities by type assertion.
type full struct{ evaler }

// Get implements [driver.Getter]. It is the path of every hit.
func (e full) Get(ctx context.Context, key string) (string, bool, error) {
	m, err := e.get(ctx, key)
	if err != nil || m.IsNil() {
		return "", false, err
	}
	v, err := m.ToString()
	return v, err == nil, err
}

// get returns the reply to a GET.
//
// The builder's own GET is marked as read-only: it would be repeated when its
// reply is lost, and functions that send reads to replicas go by that mark.
// Those that go by a command's name expect capital letters.
func (e full) get(ctx context.Context, key string) (rueidis.RedisMessage, error) {
	return e.do(ctx, e.bound.context(ctx), func() rueidis.Completed {
		return e.client.B().Arbitrary("get").Keys(key).Build()
	})
}
