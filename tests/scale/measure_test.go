package scale

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
	"github.com/leasecache/leasecache/servertest"
)

// BenchmarkCommands prints the costs of commands on a real server: the processor time
// that it spends, which is what it cannot spend on others, divided by the number
// of commands. Each command comes from one of 50 connections, on its own, as it
// does from processes. So reading it and writing its reply are in it.
func BenchmarkCommands(b *testing.B) {
	s := servertest.Start(b, servertest.Named(b, "valkey-9"))
	m := measurement{b: b, client: redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: connections})}
	defer m.client.Close()
	m.evaler = goredis.New(m.client)
	b.Log(s.Vendor, s.Version)

	keys := func(i int64) protocol.Keys {
		k := protocol.NewKeys("measure:", fmt.Sprint(i))
		k.Wake = "measure:w:{nobody}"
		return k
	}
	hour := protocol.ReadOptions{Lease: time.Hour}
	eval := func(c protocol.Call) { m.eval(c) }
	token := protocol.Token(strings.Repeat("0", 32))
	other := protocol.Token(strings.Repeat("1", 32))

	// In the order of a key's life, so that each finds what it is to find.
	m.print("readLease", func(i int64) { eval(protocol.ReadCall(keys(i), token, hour)) })
	m.print("readWait", func(i int64) { eval(protocol.ReadCall(keys(i), other, hour)) })
	m.print("release", func(i int64) { eval(protocol.ReleaseCall(keys(i), token.Unknown(), protocol.NoMark, 0)) })
	leases := make([]protocol.Lease, commands+1)
	m.run(func(i int64) {
		nonce, _ := m.eval(protocol.ReadCall(keys(i), token, hour)).At(1).Str()
		leases[i] = protocol.Lease(string(token) + ":" + nonce)
	}, commands, connections)
	m.print("fill", func(i int64) { eval(protocol.FillCall(keys(i), leases[i], value, time.Hour)) })
	m.print("get", func(i int64) { m.client.Get(context.Background(), keys(i).Value) })
	m.print("readValue", func(i int64) { eval(protocol.ReadCall(keys(i), other, hour)) })
	m.print("invalidate", func(i int64) { eval(protocol.InvalidateCall(keys(i), 0)) })

	// A subscription is a connection of its own.
	subscribe := m.run(func(i int64) {
		sub := m.client.SSubscribe(context.Background(), keys(i).Wake+fmt.Sprint(i%connections))
		defer sub.Close()
		if _, err := sub.Receive(context.Background()); err != nil {
			b.Error(err)
		}
	}, commands/20, connections)
	b.Logf("subscribe, and connect for it: %v", subscribe)

	// One after the other, or a receiver would get several messages in one write.
	invalidated := func() time.Duration {
		return m.run(func(int64) { eval(protocol.InvalidateCall(keys(0), 0)) }, commands/20, 1)
	}
	without := invalidated()
	var wg sync.WaitGroup
	for range connections {
		sub := m.client.SSubscribe(context.Background(), keys(0).Wake)
		if _, err := sub.Receive(context.Background()); err != nil {
			b.Fatal(err)
		}
		defer sub.Close()
		wg.Go(func() {
			for {
				if _, err := sub.ReceiveMessage(context.Background()); err != nil {
					return // closed
				}
			}
		})
	}
	defer wg.Wait()
	defer func() { m.client.Do(context.Background(), "CLIENT", "KILL", "TYPE", "pubsub") }()
	b.Logf("message, for each receiver: %v", (invalidated()-without)/connections)
}

const (
	connections = 50
	commands    = 20_000
)

type measurement struct {
	b      *testing.B
	client *redis.Client
	evaler driver.Evaler
}

func (m *measurement) eval(c protocol.Call) driver.Reply {
	r, err := m.evaler.Eval(context.Background(), c.Script, c.Keys, c.Args)
	if err != nil {
		m.b.Error(err)
	}
	return r
}

func (m *measurement) print(name string, command func(i int64)) {
	m.b.Logf("%s: %v", name, m.run(command, commands, connections))
}

// run runs the command with the numbers up to most, so many at a time, and returns
// what each takes.
func (m *measurement) run(command func(i int64), most int64, atATime int) time.Duration {
	command(0) // the script is known from here on
	before := m.used()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atATime {
		wg.Go(func() {
			for i := next.Add(1); i <= most; i = next.Add(1) {
				command(i)
			}
		})
	}
	wg.Wait()
	return (m.used() - before) / time.Duration(most)
}

// used returns the processor time that the server has used.
func (m *measurement) used() time.Duration {
	info := m.client.InfoMap(context.Background(), "cpu")
	var sum float64
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		s, err := strconv.ParseFloat(info.Item("CPU", name), 64)
		if err != nil {
			m.b.Fatal(err)
		}
		sum += s
	}
	return time.Duration(sum * float64(time.Second))
}
