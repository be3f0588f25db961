package rueidis

import (
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver/dsn"
)

// sentinelRefresh is how often a client that was opened by DSN asks a sentinel
// who the primary is.
const sentinelRefresh = 5 * time.Second

var (
	hosts = []string{"redis", "rediss", "valkey", "valkeys"}

	form = dsn.Form{
		Schemes:   append(hosts[:4:4], "unix"),
		MoreHosts: "further hosts of a cluster, or further sentinels, go into the parameter addr",
		Params: []dsn.Param{
			{Name: "addr", Value: dsn.Addr(), Schemes: hosts, Repeated: true},
			{Name: "client_name", Value: dsn.Word("a name without spaces")},
			{Name: "db", Value: dsn.Database(), Schemes: []string{"unix"}},
			{Name: "dial_timeout", Value: dsn.Duration()},
			{Name: "master_set", Value: dsn.Word("the name by which the sentinels know the primary"), Schemes: hosts},
			{Name: "protocol", Value: dsn.Value{Valid: func(s string) bool { return s == "2" || s == "3" }, Want: "2 or 3"}},
			{Name: "skip_verify", Value: dsn.Bool(), Schemes: []string{"rediss", "valkeys"}},
			{Name: "write_timeout", Value: dsn.Duration()},
		},
	}
)

// parseDSN leaves the parsing to the client, after the DSN was checked.
func parseDSN(s string) (rueidis.ClientOption, error) {
	d, err := form.Parse(s)
	if err != nil {
		return rueidis.ClientOption{}, err
	}
	o, err := rueidis.ParseURL(d.URL.String())
	if err != nil { // which may print the password
		return o, errors.New("dsn: the client does not take it, although each part of it looks right")
	}
	// The client is ours. Nothing here uses its cache, which needs RESP3; and a
	// call that runs out of time must not take others with it.
	o.DisableCache = true
	o.AlwaysPipelining = true
	o.ForceSingleClient = d.Scheme == "unix"
	if o.Sentinel.MasterSet != "" {
		// Or one message that is lost would bind it to a primary that was deposed.
		o.Sentinel.TopologyRefreshInterval = sentinelRefresh
		o.Sentinel.TLSConfig = o.TLSConfig
		o.Sentinel.Dialer = o.Dialer
	}
	if o.TLSConfig != nil && len(o.InitAddress) > 1 {
		// Each host shows a certificate for its own name, not for the first's.
		o.TLSConfig.ServerName = ""
	}
	return o, nil
}
