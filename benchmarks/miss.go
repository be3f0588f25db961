package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// missProbes compare misses, with a loader that returns at once, with the least that the same guarantees take: a GET that
// finds nothing, the script that takes the lease and the one that fills, one after the other, by the client alone.
func (b *bench) missProbes() ([]probe, error) {
	// The client alone has no fallback for a script that the server does not know.
	for _, s := range []*driver.Script{protocol.Read, protocol.Fill} {
		if err := b.admin.ScriptLoad(b.ctx, s.Source()).Err(); err != nil {
			return nil, err
		}
	}
	ours, theirs := missKeys(b.name+"-ours"), missKeys(b.name+"-theirs")
	return []probe{b.latency("miss/"+b.name+"/ratio", b.latencyBar,
		side{reset: b.empty(ours), op: func(i int) error {
			got, err := b.raw.Get(b.ctx, ours[i], b.loadBytes)
			return checkSize(len(got), valueSize, err)
		}},
		side{reset: b.empty(theirs), op: func(i int) error { return b.missByClient(theirs[i]) }},
	)}, nil
}

// missKeys are the keys that one block of misses reads.
func missKeys(name string) []string {
	keys := make([]string, blockOps)
	for i := range keys {
		keys[i] = "miss-" + name + "-" + strconv.Itoa(i)
	}
	return keys
}

// empty returns a function that deletes keys.
func (e *env) empty(keys []string) func() error {
	var stored []string
	for _, key := range keys {
		k := protocol.NewKeys(prefix, key)
		stored = append(stored, k.Value, k.Lease)
	}
	return func() error { return e.admin.Del(e.ctx, stored...).Err() }
}

func (b *bench) missByClient(key string) error {
	keys := protocol.NewKeys(prefix, key)
	if _, err := b.client.get(b.ctx, keys.Value); !errors.Is(err, errNone) {
		return fmt.Errorf("a read that should have been a miss: %w", err)
	}
	token := protocol.NewToken()
	state, nonce, err := b.evalCall(protocol.ReadCall(keys, token, protocol.ReadOptions{Lease: 5 * time.Second}))
	if err != nil {
		return err
	}
	if protocol.State(state) != protocol.StateLeased {
		return fmt.Errorf("the lease was not free: %d", state)
	}
	lease := protocol.Lease(string(token) + ":" + nonce)
	outcome, _, err := b.evalCall(protocol.FillCall(keys, lease, protocol.WrapValue(string(b.bytes)), ttl))
	if err == nil && protocol.Outcome(outcome) != protocol.Accepted {
		err = fmt.Errorf("the fill was not accepted: %d", outcome)
	}
	return err
}

func (b *bench) evalCall(c protocol.Call) (int64, string, error) {
	return b.client.evalsha(b.ctx, c.Script.SHA1(), c.Keys, c.Args)
}
