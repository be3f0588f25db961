package rueidis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// trackPing is how often a connection is asked whether it still works, and in a
// cluster which primaries there are, and for how long it has to answer.
const trackPing = driver.TrackSilence / 3

// dedicator is what a client needs beside to be tracked. Every rueidis.Client has
// it.
type dedicator interface {
	Dedicate() (client rueidis.DedicatedClient, cancel func())
	Nodes() map[string]rueidis.Client
	Mode() rueidis.ClientMode
}

// Track implements [driver.Tracker].
func (e evaler) Track(ctx context.Context, prefix string, changed func([]string), lost func()) (io.Closer, error) {
	d, ok := e.client.(dedicator)
	if !ok {
		return nil, fmt.Errorf("rueidis: a %T cannot be tracked, because it has no Dedicate: %w", e.client, errors.ErrUnsupported)
	}
	t := &tracking{client: d, prefix: prefix, changed: changed, ids: map[string]bool{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.lost = sync.OnceFunc(func() {
		if t.ctx.Err() == nil {
			lost()
		}
	})
	// In a goroutine, because Dedicate has no context, and connects.
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
	client  dedicator
	prefix  string
	changed func(names []string)
	lost    func()

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	conns  []rueidis.DedicatedClient
	ended  []<-chan error  // one for each of them
	ids    map[string]bool // of the primaries of a cluster that are tracked
}

// Close implements [io.Closer].
func (t *tracking) Close() error {
	t.cancel()
	for _, c := range t.conns {
		c.Close() // it is of no use to others
	}
	t.wg.Wait()
	return nil
}

// open turns tracking on at every primary.
func (t *tracking) open(ctx context.Context) (err error) {
	defer func() {
		// A panic here would end the process, and there is no caller to reach.
		if p := recover(); p != nil {
			err = fmt.Errorf("rueidis: the client panicked: %v", p)
		}
	}()
	if err := t.trackAll(ctx); err != nil {
		return err
	}
	t.watchAll()
	return nil
}

func (t *tracking) trackAll(ctx context.Context) error {
	if t.client.Mode() != rueidis.ClientModeCluster {
		return t.track(ctx, t.client)
	}
	for _, node := range t.client.Nodes() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.trackNode(ctx, node); err != nil {
			return err
		}
	}
	// One that the client does not know yet, or that has come meanwhile.
	for _, c := range t.conns {
		if err := t.check(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// trackNode turns tracking on at a node of a cluster, if it is a primary.
func (t *tracking) trackNode(ctx context.Context, node rueidis.Client) error {
	id, err := node.Do(ctx, node.B().Arbitrary("CLUSTER", "MYID").Build()).ToString()
	if err != nil {
		return trackError(err)
	}
	primaries, err := primariesOf(ctx, node)
	if err != nil || !slices.Contains(primaries, id) {
		return err
	}
	t.ids[id] = true
	return t.track(ctx, node)
}

// track turns tracking on at a server.
func (t *tracking) track(ctx context.Context, server dedicator) error {
	c, _ := server.Dedicate()
	t.conns = append(t.conns, c)
	proto, err := c.Do(ctx, c.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return trackError(err)
	}
	if version := proto["proto"]; !isThree(&version) {
		return fmt.Errorf("rueidis: a client with RESP2 cannot be tracked: %w", errors.ErrUnsupported)
	}
	ended := c.SetOnInvalidations(func(names []rueidis.RedisMessage) {
		if names == nil {
			t.lost() // the connection, or FLUSHALL
			return
		}
		changed := make([]string, len(names))
		for i := range names {
			changed[i], _ = names[i].ToString()
		}
		t.changed(changed)
	})
	// The client has turned it on for its own cache, in another mode.
	for _, args := range [][]string{{"OFF"}, {"ON", "BCAST", "PREFIX", t.prefix}} {
		if err := c.Do(ctx, c.B().Arbitrary("CLIENT", "TRACKING").Args(args...).Build()).Error(); err != nil {
			return trackError(err)
		}
	}
	t.ended = append(t.ended, ended)
	return nil
}

// watchAll begins to watch the connections, when all that is tracked is known.
func (t *tracking) watchAll() {
	for i, c := range t.conns {
		t.wg.Go(func() {
			t.watch(c, t.ended[i])
			t.lost()
		})
	}
}

func isThree(m *rueidis.RedisMessage) bool {
	n, err := m.AsInt64()
	return err == nil && n == 3
}

// watch returns when messages may be lost.
func (t *tracking) watch(c rueidis.DedicatedClient, ended <-chan error) {
	tick := time.NewTicker(trackPing)
	defer tick.Stop()
	for {
		select {
		case <-ended: //nolint:errcheck // why does not matter
			return
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(t.ctx, trackPing)
		err := t.check(ctx, c)
		cancel()
		if err != nil {
			return
		}
	}
}

// check returns an error unless the server answers, and knows of no primary that is
// not tracked: a client that it redirects to a node is redirected by one that knows
// of it.
func (t *tracking) check(ctx context.Context, c Client) error {
	if len(t.ids) == 0 {
		err := c.Do(ctx, c.B().Arbitrary("PING").Build()).Error()
		if _, replied := errors.AsType[*rueidis.RedisError](err); replied {
			return nil // that is an answer
		}
		return err
	}
	primaries, err := primariesOf(ctx, c)
	if err != nil {
		return err
	}
	for _, id := range primaries {
		if !t.ids[id] {
			return fmt.Errorf("rueidis: the primary %s is not tracked", id)
		}
	}
	return nil
}

// primariesOf returns the ids of the primaries that a node of a cluster knows of.
func primariesOf(ctx context.Context, c Client) ([]string, error) {
	slots, err := c.Do(ctx, c.B().Arbitrary("CLUSTER", "SLOTS").Build()).ToArray()
	if err != nil {
		return nil, trackError(err)
	}
	var ids []string
	for _, slot := range slots {
		// first slot, last slot, {host, port, id, ...} of the primary, of replicas
		fields, err := slot.ToArray()
		if err != nil || len(fields) < 3 {
			return nil, errors.Join(err, errors.New("rueidis: CLUSTER SLOTS without primaries"))
		}
		primary, err := fields[2].ToArray()
		if err != nil || len(primary) < 3 {
			return nil, errors.Join(err, errors.New("rueidis: CLUSTER SLOTS without ids"))
		}
		id, err := primary[2].ToString()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func trackError(err error) error {
	if re, ok := errors.AsType[*rueidis.RedisError](err); ok {
		return driver.ParseServerError(re.Error(), err)
	}
	return fmt.Errorf("rueidis: track: %w", err)
}
