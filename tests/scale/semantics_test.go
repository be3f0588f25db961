package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecache/leasecache/adapters/miniredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// both is the model, and the scripts themselves on the embedded server.
type both struct {
	t             *testing.T
	model, script interface {
		driver.Evaler
		driver.Getter
	}
	keys   protocol.Keys
	leases [2][]protocol.Lease // that reads have taken, as each side knows them
	said   map[string]int
}

// call runs one call on each side, which may differ in the nonce of the lease.
func (b *both) call(model, script protocol.Call) {
	b.t.Helper()
	var shown [2]string
	for i, side := range []struct {
		e driver.Evaler
		c protocol.Call
	}{{b.model, model}, {b.script, script}} {
		r, err := side.e.Eval(b.t.Context(), side.c.Script, side.c.Keys, side.c.Args)
		if err != nil {
			b.t.Fatalf("%s: %v", side.c.Script.Name(), err)
		}
		if n, _ := r.At(0).Int(); side.c.Script == protocol.Read && n == 2 {
			nonce, _ := r.At(1).Str()
			b.leases[i] = append(b.leases[i], protocol.Lease(side.c.Args[0]+":"+nonce))
			shown[i] = fmt.Sprint("leased, ", r.Len())
			continue
		}
		shown[i] = show(r)
	}
	if shown[0] != shown[1] {
		b.t.Fatalf("%s with %q: the model answers %s, the script %s", model.Script.Name(), model.Args, shown[0], shown[1])
	}
	first := shown[0]
	if len(first) > 2 {
		first = first[:2]
	}
	b.said[model.Script.Name()+" "+first]++
}

func show(r driver.Reply) string {
	if s, ok := r.Str(); ok {
		return fmt.Sprintf("%q", s)
	}
	if r.Kind() != driver.KindList {
		return r.String()
	}
	s := ""
	for i := range r.Len() {
		s += show(r.At(i)) + " "
	}
	return s
}

func TestTheModelAnswersAsTheScriptsDo(t *testing.T) {
	said := map[string]int{}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			embedded := miniredis.New()
			defer embedded.Close()
			// On the same clock, so without the time that the model takes.
			model := instant{newServer(costs{})}
			b := &both{t: t, model: model, script: embedded, keys: protocol.NewKeys(prefix, key), said: said}
			r := rand.New(rand.NewPCG(seed, 0))
			ms := func(most int) time.Duration { return time.Duration(1+r.IntN(most)) * time.Millisecond }
			for range 500 {
				token := protocol.Token(fmt.Sprintf("%032d", r.IntN(3)))
				pick := func() (model, script protocol.Lease) {
					if n := len(b.leases[0]); n > 0 && r.IntN(8) > 0 {
						i := max(0, n-1-r.IntN(3))
						return b.leases[0][i], b.leases[1][i]
					}
					return token.Unknown(), token.Unknown()
				}
				switch r.IntN(8) {
				case 0, 1, 2:
					if r.IntN(4) == 0 {
						token = ""
					}
					c := protocol.ReadCall(b.keys, token, protocol.ReadOptions{Lease: ms(40), OverMark: r.IntN(4) == 0})
					b.call(c, c)
				case 3, 4:
					m, s := pick()
					v, ttl := fmt.Sprint(r.IntN(2)), ms(60)
					b.call(protocol.FillCall(b.keys, m, v, ttl), protocol.FillCall(b.keys, s, v, ttl))
				case 5:
					m, s := pick()
					mark := []protocol.Mark{protocol.NoMark, protocol.MarkUnstored, protocol.MarkFailed("why")}[r.IntN(3)]
					life := ms(40)
					b.call(protocol.ReleaseCall(b.keys, m, mark, life), protocol.ReleaseCall(b.keys, s, mark, life))
				case 6:
					c := protocol.InvalidateCall(b.keys, 0)
					b.call(c, c)
				default:
					time.Sleep(ms(20))
				}
				mv, mok, _ := model.Get(t.Context(), b.keys.Value)
				sv, sok, err := embedded.Get(t.Context(), b.keys.Value)
				if mv != sv || mok != sok || err != nil {
					t.Fatalf("GET: the model answers %q, %v; the server %q, %v, %v", mv, mok, sv, sok, err)
				}
			}
		})
	}
	// Every answer must have been seen, or nothing was compared.
	for _, answer := range []string{"read 0 ", "read 1 ", "read le", "read 4 ", "read 5 ", "read 6 ", "fill 0 ", "fill 1 ", "fill 2 ", "release 0", "release 1", "invalidate 1"} {
		if said[answer] < 10 {
			t.Errorf("the answer %q was compared %d times: %v", answer, said[answer], said)
		}
	}
}

// instant is the model without its time.
type instant struct{ *server }

func (i instant) Eval(_ context.Context, s *driver.Script, keys, args []string) (driver.Reply, error) {
	r, _, err := i.script(s.Name(), keys, args, time.Now())
	return r, err
}

func (i instant) Get(_ context.Context, key string) (string, bool, error) {
	v, ok := i.look(key, time.Now())
	return v, ok, nil
}
