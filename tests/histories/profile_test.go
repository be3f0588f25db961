package histories

import (
	"time"

	"github.com/leasecache/leasecache"
)

// A profile is how a process is configured. Processes with different profiles
// share their keys.
type profile struct {
	Name       string
	ShareReads bool
	NoWakeUps  bool
	Stale      bool // takes stale copies
	Impatient  bool // loads without a lease before another's lease ends
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
	if p.Reread {
		o.OnLeaseLost = leasecache.LostReread
	}
	if p.LoadDown {
		o.OnUnavailable = leasecache.UnavailableLoad
	}
	return o
}
