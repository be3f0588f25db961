package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// probe measures one figure, once per run.
type probe struct {
	name    string
	unit    unit // of the two sides; empty if there are none
	bar     bar
	measure func(ctx context.Context) (sample, error)
}

const (
	prefix    = "leasecache-bench:"
	valueSize = 512
	ttl       = time.Hour
)

// product is what the JSON cache holds. With this content it is encoded in valueSize bytes.
type product struct {
	ID          int64    `json:"id"`
	Name        string   `json:"name"`
	Price       float64  `json:"price"`
	InStock     bool     `json:"in_stock"`
	Tags        []string `json:"tags"`
	Description string   `json:"description"`
}

func newProduct() (product, error) {
	p := product{
		ID: 42, Name: "Espresso machine", Price: 349.5, InStock: true, Tags: []string{"kitchen", "coffee", "offer"},
	}
	data, err := json.Marshal(p)
	p.Description = strings.Repeat("A ", valueSize)[:valueSize-len(data)]
	return p, err
}

// newBytes returns a value of raw bytes, the same in every run.
func newBytes() []byte {
	value := make([]byte, valueSize)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(1 + r.IntN(255)) // a first byte of 0 would be stored as two
	}
	return value
}

// setting is a client as a service may have configured it.
type setting struct {
	name    string // in the names of figures
	options redis.Options
}

var settings = []setting{
	{name: "goredis"},
	{name: "goredis-ctx", options: redis.Options{ContextTimeoutEnabled: true}},
}

// evalOnly is what a driver without optional abilities is: whoever wraps the Evaler hides them.
type evalOnly struct{ driver.Evaler }

// boundEval has no plain GET, but ends its calls by itself, as the adapter does over a cluster client that reads from
// replicas.
type boundEval struct {
	driver.Evaler
	bounder driver.Bounder
}

// Bound implements [driver.Bounder].
func (e boundEval) Bound(d time.Duration) driver.Evaler { return evalOnly{e.bounder.Bound(d)} }

// bench is a client, with caches over it, and what is in them.
type bench struct {
	client *redis.Client
	// plain is the client as it was before leasecache used it, over the same connections.
	plain *redis.Client
	// ctx is what all commands are sent with: it can be cancelled and has a deadline, as that of a request. The deadline
	// is far, so that the bound on every call is not spared.
	ctx context.Context

	raw       *leasecache.Cache[[]byte]
	evalOnly  *leasecache.Cache[[]byte]
	boundEval *leasecache.Cache[[]byte]
	json      *leasecache.Cache[product]

	bytes   []byte
	product product
	getSHA  string // of a script that does GET
}

// Keys of the caches, and those of the server that hold their values.
const (
	rawKey  = "raw"
	jsonKey = "json"
)

var (
	rawStored  = protocol.ValueKey(prefix, rawKey)
	jsonStored = protocol.ValueKey(prefix, jsonKey)
)

// newBench fills the caches. What it returns is closed by its close method.
func newBench(ctx context.Context, addr string, o redis.Options) (*bench, error) {
	o.Addr = addr
	b := &bench{client: redis.NewClient(&o), ctx: ctx, bytes: newBytes()}
	b.plain = b.client.WithTimeout(b.client.Options().ReadTimeout)
	if err := b.fill(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) fill() (err error) {
	e := goredis.New(b.client)
	bounder, ok := e.(driver.Bounder)
	if !ok {
		return fmt.Errorf("the driver %T has no Bound", e)
	}
	if b.raw, err = newCache[[]byte](e); err != nil {
		return err
	}
	if b.evalOnly, err = newCache[[]byte](evalOnly{e}); err != nil {
		return err
	}
	if b.boundEval, err = newCache[[]byte](boundEval{e, bounder}); err != nil {
		return err
	}
	if b.json, err = newCache[product](e); err != nil {
		return err
	}
	if b.product, err = newProduct(); err != nil {
		return err
	}
	if b.getSHA, err = b.client.ScriptLoad(b.ctx, "return redis.call('GET', KEYS[1])").Result(); err != nil {
		return err
	}
	// What an earlier run may have left.
	if err := b.client.Del(b.ctx, rawStored, jsonStored).Err(); err != nil {
		return err
	}
	got, err := b.raw.Get(b.ctx, rawKey, b.loadBytes)
	if err != nil || !bytes.Equal(got, b.bytes) {
		return fmt.Errorf("filling %s: got %d bytes, want the %d that were loaded; error: %w", rawKey, len(got), valueSize, err)
	}
	_, err = b.json.Get(b.ctx, jsonKey, func(context.Context) (product, error) { return b.product, nil })
	return err
}

func newCache[V any](e driver.Evaler) (*leasecache.Cache[V], error) {
	// As long as go-redis's own timeout, so that a machine which stands still for a moment does not end the program. How
	// long the bound is makes no difference to what it costs.
	store, err := leasecache.NewStore(e, leasecache.StoreOptions{CallTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return leasecache.New[V](store, leasecache.Options{Prefix: prefix, TTL: ttl})
}

func (b *bench) loadBytes(context.Context) ([]byte, error) { return b.bytes, nil }

// close removes what the bench has cached, and closes the caches and the client.
func (b *bench) close() error {
	keys := append(b.storedKeys("ours"), b.storedKeys("theirs")...)
	// The context of the measurements may have ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
	defer cancel()
	errs := []error{b.client.Del(ctx, append(keys, rawStored, jsonStored)...).Err()}
	for _, c := range []*leasecache.Cache[[]byte]{b.raw, b.evalOnly, b.boundEval} {
		if c != nil {
			errs = append(errs, c.Close(ctx))
		}
	}
	if b.json != nil {
		errs = append(errs, b.json.Close(ctx))
	}
	return errors.Join(append(errs, b.client.Close())...)
}

// errMiss ends a benchmark of hits that was none.
var errMiss = errors.New("a read that should have been a hit was a miss: has another program emptied the server?")

// hit returns a side that reads the raw value, which is cached, through c.
func (b *bench) hit(c *leasecache.Cache[[]byte]) side {
	return side{op: func(int) error {
		got, err := c.Get(b.ctx, rawKey, func(context.Context) ([]byte, error) { return nil, errMiss })
		return checkSize(len(got), err)
	}}
}

// get returns a side that reads the raw value with the client alone.
func (b *bench) get(c *redis.Client) side {
	return side{op: func(int) error {
		got, err := c.Get(b.ctx, rawStored).Bytes()
		return checkSize(len(got), err)
	}}
}

// evalsha returns a side that reads the raw value with the client alone, by a script.
func (b *bench) evalsha() side {
	return side{op: func(int) error {
		got, err := b.client.EvalSha(b.ctx, b.getSHA, []string{rawStored}).Text()
		return checkSize(len(got), err)
	}}
}

func checkSize(n int, err error) error {
	if err == nil && n != valueSize {
		return fmt.Errorf("read %d bytes, want %d", n, valueSize)
	}
	return err
}

// jsonSides read the JSON value, which is cached.
func (b *bench) jsonSides() [2]side {
	check := func(p product, err error) error {
		if err == nil && p.ID != b.product.ID {
			return fmt.Errorf("read product %d, want %d", p.ID, b.product.ID)
		}
		return err
	}
	return [2]side{
		{op: func(int) error {
			return check(b.json.Get(b.ctx, jsonKey, func(context.Context) (product, error) { return product{}, errMiss }))
		}},
		{op: func(int) error {
			var p product
			data, err := b.client.Get(b.ctx, jsonStored).Bytes()
			if err == nil {
				err = json.Unmarshal(data, &p)
			}
			return check(p, err)
		}},
	}
}

// missKeys are the keys that one block of misses reads.
func missKeys(side string) []string {
	keys := make([]string, blockOps)
	for i := range keys {
		keys[i] = "miss-" + side + "-" + strconv.Itoa(i)
	}
	return keys
}

func (b *bench) storedKeys(side string) []string {
	keys := missKeys(side)
	for i, key := range keys {
		keys[i] = protocol.ValueKey(prefix, key)
	}
	return keys
}

// missSides read what is not cached. One side is the least that the same guarantees take: a GET that finds nothing, the
// script that takes the lease and the one that fills, one after the other, by the client alone.
func (b *bench) missSides() [2]side {
	empty := func(side string) func() error {
		stored := b.storedKeys(side)
		return func() error { return b.client.Del(b.ctx, stored...).Err() }
	}
	ours, theirs := missKeys("ours"), missKeys("theirs")
	return [2]side{
		{reset: empty("ours"), op: func(i int) error {
			got, err := b.raw.Get(b.ctx, ours[i], b.loadBytes)
			return checkSize(len(got), err)
		}},
		{reset: empty("theirs"), op: func(i int) error { return b.missByClient(theirs[i]) }},
	}
}

func (b *bench) missByClient(key string) error {
	keys := protocol.NewKeys(prefix, key)
	if err := b.client.Get(b.ctx, keys.Value).Err(); !errors.Is(err, redis.Nil) {
		return fmt.Errorf("a read that should have been a miss: %w", err)
	}
	token := protocol.NewToken()
	reply, err := b.evalCall(protocol.ReadCall(keys, token, protocol.ReadOptions{Lease: 5 * time.Second})).Slice()
	if err != nil {
		return err
	}
	if len(reply) != 2 {
		return fmt.Errorf("the lease was not free: %v", reply)
	}
	lease := protocol.Lease(fmt.Sprintf("%s:%s", token, reply[1]))
	reply, err = b.evalCall(protocol.FillCall(keys, lease, protocol.WrapValue(string(b.bytes)), ttl)).Slice()
	if err == nil && reply[0] != int64(protocol.Accepted) {
		err = fmt.Errorf("the fill was not accepted: %v", reply)
	}
	return err
}

func (b *bench) evalCall(c protocol.Call) *redis.Cmd {
	args := make([]any, len(c.Args))
	for i, a := range c.Args {
		args[i] = a
	}
	return b.client.EvalSha(b.ctx, c.Script.SHA1(), c.Keys, args...)
}

// commandsPerHit counts what the server is sent for one hit.
func (b *bench) commandsPerHit(s side) (sample, error) {
	before, err := b.commandCount()
	if err != nil {
		return sample{}, err
	}
	for range allocOps {
		if err := s.op(0); err != nil {
			return sample{}, err
		}
	}
	after, err := b.commandCount()
	if err != nil {
		return sample{}, err
	}
	return sample{value: float64(after-before) / allocOps}, nil
}

// commandCount returns how many commands the server has run, those in scripts included, without INFO itself.
func (b *bench) commandCount() (int, error) {
	info, err := b.client.Info(b.ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	return countCalls(info)
}

// countCalls adds up the calls in the section commandstats of INFO, whose lines read
// "cmdstat_get:calls=21,usec=175,usec_per_call=8.33,...".
func countCalls(info string) (int, error) {
	total := 0
	for line := range strings.Lines(info) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || name == "info" {
			continue
		}
		calls, _, _ := strings.Cut(stats, ",")
		n, err := strconv.Atoi(calls)
		if err != nil {
			return 0, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		total += n
	}
	return total, nil
}

// probes returns the figures of one setting, in the order of the report.
func (b *bench) probes(name string, p plan) []probe {
	lat := func(figure string, bar bar, ours, theirs side) probe {
		return probe{figure, microseconds, bar, func(context.Context) (sample, error) {
			return latency(p.latencyPairs, [2]side{ours, theirs})
		}}
	}
	thr := func(figure string, bar bar, ours, theirs side) probe {
		return probe{figure, perSecond, bar, func(ctx context.Context) (sample, error) {
			return throughput(ctx, p.throughputPairs, [2]side{ours, theirs})
		}}
	}
	hit, get, evalsha := b.hit(b.raw), b.get(b.client), b.evalsha()
	json, miss := b.jsonSides(), b.missSides()
	return []probe{
		lat("hit/"+name+"/latency_ratio", atMost(1.05), hit, get),
		thr("hit/"+name+"/throughput_ratio", atLeast(0.95), hit, get),
		{"hit/" + name + "/extra_allocs", allocs, atMost(3), func(context.Context) (sample, error) {
			return extraAllocs([2]side{hit, get})
		}},
		{"hit/" + name + "/commands_per_hit", "", exactlyOne(), func(context.Context) (sample, error) {
			return b.commandsPerHit(hit)
		}},
		lat("hit/"+name+"/json_ratio", atMost(1.05), json[0], json[1]),
		lat("hit/"+name+"/evalsha_ratio", bar{}, hit, evalsha),
		lat("hit/"+name+"/bound_eval_ratio", bar{}, b.hit(b.boundEval), evalsha),
		lat("hit/"+name+"/eval_only_ratio", bar{}, b.hit(b.evalOnly), evalsha),
		lat("hit/"+name+"/hook_ratio", bar{}, get, b.get(b.plain)),
		lat("miss/"+name+"/ratio", atMost(1.05), miss[0], miss[1]),
		lat("aa/"+name+"/latency_ratio", bar{}, get, b.get(b.client)),
		thr("aa/"+name+"/throughput_ratio", bar{}, get, b.get(b.client)),
	}
}
