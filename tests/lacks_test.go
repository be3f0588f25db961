package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	redigopool "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/redigo"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/driver"
)

// abilities are what the README says of them: "has", "lacks", or "has, " and a
// condition.
type abilities struct{ get, bound, batch, ping, wake, near string }

var (
	hasAll     = abilities{"has", "has", "has", "has", "has", "has"}
	noMessages = abilities{"has", "has", "has", "has", "lacks", "lacks"}
	ofGlide    = abilities{"has", "has", "lacks", "has", "lacks", "lacks"}
	pingOnly   = abilities{"lacks", "lacks", "lacks", "has", "lacks", "lacks"}
)

// form is a client of a row, and which abilities it must turn out to have.
type form struct {
	name                                string
	get, bound, batch, ping, wake, near bool
	open                                func(t *testing.T, addr string) driver.Evaler
}

// lacks is the table of lacks: one row for each kind of client that an adapter
// takes.
var lacks = []struct {
	client string
	says   abilities
	forms  []form
}{
	{"goredis, `*redis.Client`", hasAll, []form{
		{"as it is", true, true, true, true, true, true, func(t *testing.T, addr string) driver.Evaler { return goredis.New(redisClient(t, addr)) }},
	}},
	{"goredis, `*redis.ClusterClient`", abilities{"has, unless it reads from replicas", "has, with `ContextTimeoutEnabled`", "has, unless it reads from replicas", "has", "has", "has"}, []form{
		{"with ContextTimeoutEnabled", true, true, true, true, true, true, ofCluster(redis.ClusterOptions{ContextTimeoutEnabled: true})},
		{"without it", true, false, true, true, true, true, ofCluster(redis.ClusterOptions{})},
		{"that reads from replicas", false, false, false, true, true, true, ofCluster(redis.ClusterOptions{ContextTimeoutEnabled: true, ReadOnly: true})},
	}},
	{"goredis, `*redis.Ring`", abilities{"has", "has, with `ContextTimeoutEnabled`", "has", "has", "has", "has"}, []form{
		{"with ContextTimeoutEnabled", true, true, true, true, true, true, ofRing(true)},
		{"without it", true, false, true, true, true, true, ofRing(false)},
	}},
	{"goredis, any other client", pingOnly, []form{
		{"a wrapper", false, false, false, true, false, false, func(t *testing.T, addr string) driver.Evaler {
			return goredis.New(struct{ goredis.Client }{redisClient(t, addr)})
		}},
	}},
	{"goredis, opened by DSN", hasAll, []form{{"opened", true, true, true, true, true, true, byDSN("goredis")}}},

	{"rueidis, `rueidis.Client` and wrappers of it", abilities{"has", "has", "has", "has", "has", "has, with RESP3"}, []form{
		{"as it is", true, true, true, true, true, true, func(t *testing.T, addr string) driver.Evaler { return rueidis.New(rueidisClient(t, addr)) }},
		{"a wrapper", true, true, true, true, true, true, func(t *testing.T, addr string) driver.Evaler {
			return rueidis.New(struct{ rueidisclient.Client }{rueidisClient(t, addr)})
		}},
		{"with RESP2", true, true, true, true, true, false, func(t *testing.T, addr string) driver.Evaler {
			return openRueidis(t, target{topology: standalone, protocol: 2, addrs: []string{addr}})
		}},
	}},
	{"rueidis, any other client", pingOnly, []form{
		{"with the methods that are needed", false, false, false, true, false, false, func(t *testing.T, addr string) driver.Evaler {
			return rueidis.New(struct{ rueidis.Client }{rueidisClient(t, addr)})
		}},
	}},
	{"rueidis, opened by DSN", hasAll, []form{{"opened", true, true, true, true, true, true, byDSN("rueidis")}}},

	{"valkeygo, `valkey.Client` and wrappers of it", abilities{"has", "has", "has", "has", "has", "has, with RESP3"}, []form{
		{"as it is", true, true, true, true, true, true, func(t *testing.T, addr string) driver.Evaler { return valkeygo.New(valkeyClient(t, addr)) }},
		{"a wrapper", true, true, true, true, true, true, func(t *testing.T, addr string) driver.Evaler {
			return valkeygo.New(struct{ valkey.Client }{valkeyClient(t, addr)})
		}},
		{"with RESP2", true, true, true, true, true, false, func(t *testing.T, addr string) driver.Evaler {
			return openValkeygo(t, target{topology: standalone, protocol: 2, addrs: []string{addr}})
		}},
	}},
	{"valkeygo, any other client", pingOnly, []form{
		{"with the methods that are needed", false, false, false, true, false, false, func(t *testing.T, addr string) driver.Evaler {
			return valkeygo.New(struct{ valkeygo.Client }{valkeyClient(t, addr)})
		}},
	}},
	{"valkeygo, opened by DSN", hasAll, []form{{"opened", true, true, true, true, true, true, byDSN("valkeygo")}}},

	{"redigo, `*redis.Pool`", abilities{"has", "has", "has", "has", "has, unless `MaxActive` is 1", "has, unless `MaxActive` is 1"}, []form{
		{"as it is", true, true, true, true, true, true, func(t *testing.T, addr string) driver.Evaler { return redigo.New(redigoPool(t, addr)) }},
		{"of one connection", true, true, true, true, false, false, func(t *testing.T, addr string) driver.Evaler {
			p := redigoPool(t, addr)
			p.MaxActive = 1
			return redigo.New(p)
		}},
	}},
	{"redigo, any other pool", abilities{"lacks", "lacks", "lacks", "has", "has", "has"}, []form{
		{"a wrapper", false, false, false, true, true, true, func(t *testing.T, addr string) driver.Evaler {
			return redigo.New(struct{ redigo.Client }{redigoPool(t, addr)})
		}},
	}},
	{"redigo, opened by DSN", hasAll, []form{{"opened", true, true, true, true, true, true, byDSN("redigo")}}},

	{"glide, any client", ofGlide, []form{
		{"as it is", true, true, false, true, false, false, func(t *testing.T, addr string) driver.Evaler {
			return openGlide(t, target{topology: standalone, addrs: []string{addr}})
		}},
	}},
	{"glide, opened by DSN", ofGlide, []form{{"opened", true, true, false, true, false, false, byDSN("glide")}}},

	// The module of miniredis runs the suite, and declares what it lacks. It is not
	// imported here, or the registry would know it: see open_test.go.
	{"miniredis", noMessages, nil},
}

func ofCluster(o redis.ClusterOptions) func(*testing.T, string) driver.Evaler {
	return func(t *testing.T, addr string) driver.Evaler {
		o.Addrs = []string{addr}
		c := redis.NewClusterClient(&o)
		t.Cleanup(func() { c.Close() })
		return goredis.New(c)
	}
}

func ofRing(contextTimeoutEnabled bool) func(*testing.T, string) driver.Evaler {
	return func(t *testing.T, addr string) driver.Evaler {
		c := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, ContextTimeoutEnabled: contextTimeoutEnabled})
		t.Cleanup(func() { c.Close() })
		return goredis.New(c)
	}
}

func rueidisClient(t *testing.T, addr string) rueidisclient.Client {
	c, err := rueidisclient.NewClient(rueidisclient.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func valkeyClient(t *testing.T, addr string) valkey.Client {
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func redigoPool(t *testing.T, addr string) *redigopool.Pool {
	p := &redigopool.Pool{Dial: func() (redigopool.Conn, error) { return redigopool.Dial("tcp", addr) }}
	t.Cleanup(func() { p.Close() })
	return p
}

func byDSN(name string) func(*testing.T, string) driver.Evaler {
	return func(t *testing.T, addr string) driver.Evaler {
		e, err := driver.Open(name, "redis://"+addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.(driver.Closer).Close() })
		return e
	}
}

func TestLacksAreAsTheTableSays(t *testing.T) {
	t.Parallel()
	s, _ := startOne(t)
	for _, row := range lacks {
		t.Run(row.client, func(t *testing.T) {
			has := map[string]map[bool]bool{"Get": {}, "Bound": {}, "Batch": {}, "Ping": {}, "Wake": {}, "Near": {}}
			for _, f := range row.forms {
				d := f.open(t, s.Addr)
				_, get := d.(driver.Getter)
				if _, getBytes := d.(driver.BytesGetter); getBytes != get {
					t.Errorf("%s: Get %v, GetBytes %v; the table has one column for both", f.name, get, getBytes)
				}
				_, bound := d.(driver.Bounder)
				_, batch := d.(driver.Batcher)
				if _, batchGet := d.(driver.BatchGetter); batchGet != batch {
					t.Errorf("%s: Batch %v, BatchGet %v; the table has one column for both", f.name, batch, batchGet)
				}
				_, ping := d.(driver.Pinger)
				wake := canWake(t, d)
				near := canTrack(t, d)
				if get != f.get || bound != f.bound || batch != f.batch || ping != f.ping || wake != f.wake || near != f.near {
					t.Errorf("%s: Get %v, Bound %v, Batch %v, Ping %v, Wake %v, Near %v; want %v, %v, %v, %v, %v, %v",
						f.name, get, bound, batch, ping, wake, near, f.get, f.bound, f.batch, f.ping, f.wake, f.near)
				}
				has["Get"][get], has["Bound"][bound], has["Batch"][batch], has["Ping"][ping], has["Wake"][wake], has["Near"][near] = true, true, true, true, true, true
			}
			if row.forms == nil {
				return
			}
			for ability, says := range map[string]string{"Get": row.says.get, "Bound": row.says.bound, "Batch": row.says.batch, "Ping": row.says.ping, "Wake": row.says.wake, "Near": row.says.near} {
				var want map[bool]bool
				switch {
				case says == "has":
					want = map[bool]bool{true: true}
				case says == "lacks":
					want = map[bool]bool{false: true}
				case strings.HasPrefix(says, "has, "):
					want = map[bool]bool{true: true, false: true}
				}
				if fmt.Sprint(has[ability]) != fmt.Sprint(want) {
					t.Errorf("%s: the table says %q, and of its clients there are with and without: %v", ability, says, has[ability])
				}
			}
		})
	}
}

// canWake reports whether a driver can subscribe, over the client that it has.
func canWake(t *testing.T, d driver.Evaler) bool {
	s, ok := d.(driver.Subscriber)
	if !ok {
		return false
	}
	sub, err := s.Subscribe(func(string) {})
	if errors.Is(err, errors.ErrUnsupported) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	return true
}

// canTrack reports whether a driver can have the server tell what changes, over the
// client that it has.
func canTrack(t *testing.T, d driver.Evaler) bool {
	tr, ok := d.(driver.Tracker)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := tr.Track(ctx, "lacks:", func([]string) {}, func() {})
	if err != nil {
		return !errors.Is(err, errors.ErrUnsupported) // the server is no cluster, for the client of one
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	return true
}

// The README shows the table, and every driver that there is has rows in it.
func TestTheREADMEHasTheTableOfLacks(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- lacks:begin -->\n| Adapter | Plain GET | Bounded calls | Batches | Ping | Wake-ups | Near tier |\n|---|---|---|---|---|---|---|\n")
	for _, row := range lacks {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", row.client, row.says.get, row.says.bound, row.says.batch, row.says.ping, row.says.wake, row.says.near)
	}
	b.WriteString("<!-- lacks:end -->\n")
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), b.String()) {
		t.Errorf("the README's table of lacks is not this one:\n%s", b.String())
	}
	for _, name := range driver.Drivers() {
		if !strings.Contains(b.String(), "\n| "+name+", ") && !strings.Contains(b.String(), "\n| "+name+" |") {
			t.Errorf("the table of lacks has no row for %s", name)
		}
	}
	for _, c := range clients {
		if !strings.Contains(b.String(), "\n| "+c.name) {
			t.Errorf("the table of lacks has no row for %s", c.name)
		}
	}
}
