// Package near keeps the values of leasecache in the process, bounded in bytes, by
// github.com/maypok86/otter/v2.
//
//	products, err := leasecache.New[Product](goredis.New(rdb), leasecache.Options{
//		Prefix: "catalog:",
//		TTL:    10 * time.Minute,
//		Near:   near.New(64 << 20),
//	})
//
// What may be kept, and for how long, package leasecache decides: see
// leasecache.Options.Near. Values are kept as they are stored on the server. A hit
// of a cache of strings gets that string, of byte slices a copy, and any other
// value is decoded anew, so that no caller can change what another one gets.
package near

import (
	"math"

	"github.com/maypok86/otter/v2"

	"github.com/leasecache/leasecache"
)

// overhead is what an entry takes beside the bytes of its key and value: itself,
// the node of otter, and its place in the table. A test compares it with what the
// runtime says.
const overhead = 256

// New returns a [leasecache.Near] that keeps at most maxBytes bytes, with all that
// an entry takes. What is asked for rarely goes first. A value that has expired
// goes when room is wanted. Several caches may share it.
//
// It has no goroutine of its own, and nothing to be closed. When maxBytes is not
// positive it keeps nothing.
func New(maxBytes int64) leasecache.Near {
	if maxBytes <= 0 {
		return none{}
	}
	return kept{otter.Must(&otter.Options[leasecache.NearKey, *leasecache.NearEntry]{
		MaximumWeight: uint64(maxBytes),
		Weigher: func(k leasecache.NearKey, e *leasecache.NearEntry) uint32 {
			return uint32(min(uint64(len(k.Key)+e.Size()+overhead), math.MaxUint32)) // a value has at most 512 MiB
		},
	})}
}

// kept has no expiry of otter's: package leasecache looks at the TTL itself, and
// otter would look at the clock a second time.
type kept struct {
	cache *otter.Cache[leasecache.NearKey, *leasecache.NearEntry]
}

// Get implements [leasecache.Near].
func (n kept) Get(k leasecache.NearKey) (*leasecache.NearEntry, bool) {
	return n.cache.GetIfPresent(k)
}

// Set implements [leasecache.Near].
func (n kept) Set(k leasecache.NearKey, e *leasecache.NearEntry) { n.cache.Set(k, e) }

// Delete implements [leasecache.Near].
func (n kept) Delete(k leasecache.NearKey) { n.cache.Invalidate(k) }

// Clear implements [leasecache.Near].
func (n kept) Clear() { n.cache.InvalidateAll() }

// none keeps nothing.
type none struct{}

// Get implements [leasecache.Near].
func (none) Get(leasecache.NearKey) (*leasecache.NearEntry, bool) { return nil, false }

// Set implements [leasecache.Near].
func (none) Set(leasecache.NearKey, *leasecache.NearEntry) {}

// Delete implements [leasecache.Near].
func (none) Delete(leasecache.NearKey) {}

// Clear implements [leasecache.Near].
func (none) Clear() {}
