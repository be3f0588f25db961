package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/leasecache/leasecache"
)

// side is one way to read through a cache.
type side interface {
	// get returns the product, from the cache or by load.
	get(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error)
	// invalidate is called after the source has changed.
	invalidate(ctx context.Context, key string) error
	// cached returns what is cached.
	cached(ctx context.Context, key string) (p product, ok bool, err error)
	// rejected returns how many loads of this process were not cached because
	// their lease had ended.
	rejected() int
	// clear deletes all that is on the server for key.
	clear(ctx context.Context, key string) error
	// close ends the loads that run.
	close(ctx context.Context) error
}

// The names of the sides.
const (
	naiveSide  = "naive"
	leasesSide = "leases"
)

// valueTTL is for how long values are cached. Nothing expires while an act
// plays, and nothing stays on a server long after a demo that was killed.
const valueTTL = time.Minute

// newSide returns the side of that name for an act. All keys on the server
// begin with prefix.
func newSide(name string, c *clients, a act, prefix string) (side, error) {
	if name == naiveSide {
		n := &naive{rdb: c.rdb, prefix: prefix + "naive:"}
		if a.locks {
			n.lock = a.lease
		}
		return n, nil
	}
	cache, err := leasecache.New[product](c.store, leasecache.Options{
		Prefix: prefix,
		TTL:    valueTTL,
		Lease:  a.lease,
		// The acts pause loads past their lease, and nobody is to lose patience
		// on a slow machine.
		LoadTimeout: patience,
		WaitBound:   patience,
	})
	if err != nil {
		return nil, err
	}
	return leased{cache}, nil
}

// leased is the side with leases.
type leased struct{ cache *leasecache.Cache[product] }

func (l leased) get(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error) {
	return l.cache.Get(ctx, key, load)
}

func (l leased) invalidate(ctx context.Context, key string) error {
	return l.cache.Invalidate(ctx, key)
}

func (l leased) cached(ctx context.Context, key string) (product, bool, error) {
	res, ok, err := l.cache.Peek(ctx, key)
	return res.Value, ok, err
}

func (l leased) rejected() int { return int(l.cache.Stats().FillsRejected) }

func (l leased) clear(ctx context.Context, key string) error { return l.cache.Invalidate(ctx, key) }

func (l leased) close(ctx context.Context) error { return l.cache.Close(ctx) }

// naive is the side without: cache-aside with GET and SET, where the misses of
// a process share a load. With lock, a load also holds a lock on the server for
// that long. It does all that is commonly asked of such code: the lock has a
// random token and an expiry, the cache is looked at again under it, and the
// release checks the token.
type naive struct {
	rdb     redis.UniversalClient
	prefix  string
	lock    time.Duration
	flights singleflight.Group
}

func (n *naive) valueKey(key string) string { return n.prefix + "value:{" + key + "}" }
func (n *naive) lockKey(key string) string  { return n.prefix + "lock:{" + key + "}" }

func (n *naive) get(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error) {
	p, ok, err := n.cached(ctx, key)
	if err != nil || ok {
		return p, err
	}
	v, err, _ := n.flights.Do(key, func() (any, error) {
		if n.lock > 0 {
			return n.loadLocked(ctx, key, load)
		}
		return n.load(ctx, key, load)
	})
	if err != nil {
		return product{}, err
	}
	return v.(product), nil
}

func (n *naive) load(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error) {
	p, err := load(ctx)
	if err != nil {
		return product{}, err
	}
	stored, err := json.Marshal(p)
	if err != nil {
		return product{}, err
	}
	return p, n.rdb.Set(ctx, n.valueKey(key), stored, valueTTL).Err()
}

// release deletes the lock if it is still ours.
var release = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`)

func (n *naive) loadLocked(ctx context.Context, key string, load func(context.Context) (product, error)) (product, error) {
	const poll = 50 * time.Millisecond
	token := rand.Text()
	for {
		locked, err := n.rdb.SetNX(ctx, n.lockKey(key), token, n.lock).Result()
		if err != nil {
			return product{}, err
		}
		p, ok, err := n.cached(ctx, key) // it may have been loaded meanwhile
		if err == nil && !ok && locked {
			p, err = n.load(ctx, key, load)
		}
		if locked {
			return p, errors.Join(err, release.Run(ctx, n.rdb, []string{n.lockKey(key)}, token).Err())
		}
		if err != nil || ok {
			return p, err
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return product{}, ctx.Err()
		}
	}
}

func (n *naive) invalidate(ctx context.Context, key string) error {
	return n.rdb.Del(ctx, n.valueKey(key)).Err()
}

func (n *naive) cached(ctx context.Context, key string) (p product, ok bool, err error) {
	stored, err := n.rdb.Get(ctx, n.valueKey(key)).Bytes()
	if errors.Is(err, redis.Nil) {
		return product{}, false, nil
	}
	if err != nil {
		return product{}, false, err
	}
	if err := json.Unmarshal(stored, &p); err != nil {
		return product{}, false, fmt.Errorf("decode the cached %s: %w", key, err)
	}
	return p, true, nil
}

func (n *naive) rejected() int { return 0 }

func (n *naive) clear(ctx context.Context, key string) error {
	return n.rdb.Del(ctx, n.valueKey(key), n.lockKey(key)).Err()
}

func (n *naive) close(context.Context) error { return nil }
