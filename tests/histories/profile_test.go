package histories

import (
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/compress"
	"github.com/leasecache/leasecache/near"
)

// A profile is how a process is configured. Processes with different profiles
// share their keys.
type profile struct {
	Name       string
	ShareReads bool
	NoWakeUps  bool
	Stale      bool // takes stale copies
	Impatient  bool // loads without a lease before another's lease ends
	Near       bool // keeps values itself
	Compress   bool
	MaxLoads   int
	Reread     bool // reads again what was loaded and not cached
	LoadDown   bool // loads without a lease while the server is down
}

// profiles are given to the processes of a site in turn.
var profiles = []profile{
	{Name: "default"},
	{Name: "share reads, wait little", ShareReads: true, Impatient: true},
	{Name: "stale", Stale: true},
	{Name: "poll, reread, stale", NoWakeUps: true, Reread: true, Stale: true},
	{Name: "load while down", LoadDown: true},
}

// soaking are the profiles of a soak: together they have every option. All write
// what all can read.
var soaking = []profile{
	{Name: "near, compress", Near: true, Compress: true},
	{Name: "share reads, wait little, compress", ShareReads: true, Impatient: true, Compress: true, MaxLoads: 16},
	{Name: "stale, compress", Stale: true, Compress: true},
	{Name: "poll, reread, load while down, compress", NoWakeUps: true, Reread: true, LoadDown: true, Compress: true},
}

func (p profile) store() leasecache.StoreOptions {
	return leasecache.StoreOptions{CallTimeout: 500 * time.Millisecond, NoWakeUps: p.NoWakeUps}
}

func (p profile) options() leasecache.Options {
	o := leasecache.Options{
		Prefix: "histories:", TTL: time.Minute, Jitter: 0.5, Lease: lease, LoadTimeout: 3 * lease, WaitBound: 3 * lease,
		ShareReads: p.ShareReads,
	}
	if p.Stale {
		o.Stale = staleFor
	}
	if p.Impatient {
		o.WaitBound = lease / 4
	}
	if p.Near {
		o.Near = near.New(4 << 20)
	}
	if p.Compress {
		codec, err := compress.New(compress.Options{Codec: compress.Raw, Threshold: 64})
		if err != nil {
			panic(err)
		}
		o.Codec = codec
	}
	o.MaxLoads = p.MaxLoads
	if p.Reread {
		o.OnLeaseLost = leasecache.LostReread
	}
	if p.LoadDown {
		o.OnUnavailable = leasecache.UnavailableLoad
	}
	return o
}
