package goredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/leasecache/leasecache/driver"
)

const (
	// A connection that has been silent for trackPing is asked whether it still
	// works, and has as long to answer. As often a cluster is asked for its primaries.
	trackPing = driver.TrackSilence / 3
	// With RESP2 messages come by this channel.
	trackChannel = "__redis__:invalidate"
)

// Track implements [driver.Tracker]. Clients of other types than go-redis's own,
// and clusters that are told of their nodes by a function, have no connections for
// messages.
func (e evaler) Track(ctx context.Context, prefix string, changed func([]string), lost func()) (io.Closer, error) {
	t := &tracking{prefix: prefix, changed: changed}
	switch c := e.client.(type) {
	case *redis.Client:
		t.primaries = func(context.Context) (map[string]*redis.Client, error) {
			return map[string]*redis.Client{"": c}, nil
		}
	case *redis.Ring:
		t.primaries = func(ctx context.Context) (map[string]*redis.Client, error) { return ofShards(ctx, c) }
	case *redis.ClusterClient:
		if c.Options().ClusterSlots != nil {
			return nil, fmt.Errorf("goredis: a cluster with a ClusterSlots function cannot be tracked: %w", errors.ErrUnsupported)
		}
		t.primaries = func(ctx context.Context) (map[string]*redis.Client, error) { return ofCluster(ctx, c) }
	default:
		return nil, fmt.Errorf("goredis: a %T cannot be tracked: %w", c, errors.ErrUnsupported)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.lost = sync.OnceFunc(func() {
		if t.ctx.Err() == nil {
			lost()
		}
	})
	// In a goroutine, because go-redis heeds no context while it connects.
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		err = t.open(ctx)
	}()
	select {
	case <-opened:
		if err != nil {
			t.Close()
			return nil, err
		}
		return t, nil
	case <-ctx.Done():
		t.cancel()
		go func() {
			<-opened
			t.Close()
		}()
		return nil, ctx.Err()
	}
}

// tracking has a connection to each primary.
type tracking struct {
	prefix  string
	changed func(names []string)
	lost    func()
	// primaries returns all primaries there are, by names that stay.
	primaries func(ctx context.Context) (map[string]*redis.Client, error)

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	links  []*trackLink
}

// trackLink is a connection that the server tells by what has changed. It is that
// of a client of its own, with the options of the primary's. With RESP2 a
// connection can wait for messages: go-redis has no way to do that with RESP3.
type trackLink struct {
	client *redis.Client
	pubsub *redis.PubSub
}

// Close implements [io.Closer].
func (t *tracking) Close() error {
	t.cancel()
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.client.Close(), l.pubsub.Close())
	}
	t.wg.Wait()
	return errors.Join(errs...)
}

// open turns tracking on at every primary.
func (t *tracking) open(ctx context.Context) error {
	primaries, err := t.primaries(ctx)
	if err != nil {
		return err
	}
	for _, c := range primaries {
		if err := ctx.Err(); err != nil {
			return err
		}
		l := newTrackLink(ctx, c, t.prefix)
		t.links = append(t.links, l)
		if err := l.subscribe(ctx); err != nil {
			return err
		}
		t.wg.Go(func() {
			l.receive(t)
			t.lost()
		})
	}
	// The nodes may have changed before all were tracked.
	if err := t.check(ctx, primaries); err != nil {
		return err
	}
	t.wg.Go(func() {
		t.watch(primaries)
		t.lost()
	})
	return nil
}

// watch returns when there is a primary that is not tracked, or may be.
func (t *tracking) watch(tracked map[string]*redis.Client) {
	if _, one := tracked[""]; one {
		<-t.ctx.Done()
		return
	}
	for tick := time.NewTicker(trackPing); ; {
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			tick.Stop()
			return
		}
		ctx, cancel := context.WithTimeout(t.ctx, trackPing)
		err := t.check(ctx, tracked)
		cancel()
		if err != nil {
			tick.Stop()
			return
		}
	}
}

// check returns an error unless all primaries are tracked.
func (t *tracking) check(ctx context.Context, tracked map[string]*redis.Client) error {
	now, err := t.primaries(ctx)
	if err != nil {
		return err
	}
	for id, c := range now {
		if tracked[id] != c {
			return errors.New("goredis: there is a primary that is not tracked")
		}
	}
	return nil
}

// ofShards returns the shards of a ring.
func ofShards(ctx context.Context, c *redis.Ring) (map[string]*redis.Client, error) {
	var mu sync.Mutex
	shards := map[string]*redis.Client{}
	err := c.ForEachShard(ctx, func(_ context.Context, shard *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		shards[fmt.Sprintf("%p", shard)] = shard
		return nil
	})
	return shards, err
}

// ofCluster returns the primaries of a cluster, by their ids. It fails unless they
// are all that any of them knows of: who redirects a client to a node knows of it.
func ofCluster(ctx context.Context, c *redis.ClusterClient) (map[string]*redis.Client, error) {
	var mu sync.Mutex
	primaries, known := map[string]*redis.Client{}, map[string]bool{}
	err := c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		id, err := node.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		slots, err := node.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS names primaries that have failed as well
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		primaries[id] = node
		for _, s := range slots {
			if len(s.Nodes) > 0 {
				known[s.Nodes[0].ID] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for id := range known {
		if primaries[id] == nil {
			c.ReloadState(ctx)
			return nil, fmt.Errorf("goredis: the client does not know the primary %s yet", id)
		}
	}
	return primaries, nil
}

func newTrackLink(ctx context.Context, c *redis.Client, prefix string) *trackLink {
	o := c.WithTimeout(trackPing).Options() // a copy
	if d, ok := ctx.Deadline(); ok {
		o.DialTimeout = max(min(o.DialTimeout, time.Until(d)), time.Millisecond)
	}
	o.Protocol, o.MaxRetries, o.DialerRetries, o.MinIdleConns = 2, -1, 1, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor, o.ClientSideCacheConfig, o.ClientSideCache = nil, nil, nil
	before := o.OnConnect
	var connected atomic.Bool
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		if connected.Swap(true) {
			return errLost // go-redis would connect again by itself
		}
		id, err := conn.ClientID(ctx).Result()
		if err != nil {
			return err
		}
		return conn.Do(ctx, "CLIENT", "TRACKING", "ON", "REDIRECT", id, "BCAST", "PREFIX", prefix).Err()
	}
	own := redis.NewClient(o)
	return &trackLink{client: own, pubsub: own.Subscribe(ctx)}
}

// subscribe connects, and waits until the server has confirmed.
func (l *trackLink) subscribe(ctx context.Context) error {
	err := l.pubsub.Subscribe(ctx, trackChannel)
	if err == nil {
		_, err = l.pubsub.ReceiveTimeout(ctx, trackPing)
	}
	if re, ok := errors.AsType[redis.Error](err); ok {
		return driver.ParseServerError(re.Error(), err)
	}
	return err
}

// receive returns when messages may be lost.
func (l *trackLink) receive(t *tracking) {
	asked := false // whether the connection still works
	for {
		m, err := l.pubsub.ReceiveTimeout(t.ctx, trackPing)
		timeout, isNet := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			asked = false
			if m, ok := m.(*redis.Message); ok && len(m.PayloadSlice) > 0 {
				t.changed(m.PayloadSlice)
			}
		case isNet && timeout.Timeout() && !asked:
			asked = true
			if l.pubsub.Ping(t.ctx) != nil {
				return
			}
		default:
			return // also after FLUSHALL, which has no names
		}
	}
}
