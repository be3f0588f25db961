package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/leasecache/leasecache/internal/resp"
)

// control is how the suite itself talks to the servers: to one, or to every
// primary of a cluster. All methods may be called concurrently.
type control struct {
	h     Harness
	entry *resp.Conn

	mu    sync.Mutex
	nodes map[string]*resp.Conn // of a cluster, by address
	homes map[string]*resp.Conn // where a hash tag was found
}

func newControl(ctx context.Context, h Harness) (*control, error) {
	nc, err := h.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return &control{h: h, entry: resp.NewConn(nc), nodes: map[string]*resp.Conn{}, homes: map[string]*resp.Conn{}}, nil
}

func (c *control) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry.Close()
	for _, n := range c.nodes {
		n.Close()
	}
}

// do runs a command whose first argument, if any, is a key or a shard channel.
// It follows redirections.
func (c *control) do(ctx context.Context, args []string) (resp.Value, error) {
	if c.h.DialNode == nil || len(args) == 1 {
		v, err := c.entry.Do(args...)
		if re, replied := errors.AsType[resp.Error](err); replied && strings.HasPrefix(string(re), "MOVED ") {
			err = fmt.Errorf("%w: Harness.Dial connects to a node of a cluster, which needs Harness.DialNode as well", err)
		}
		return v, err
	}
	tag := hashTag(args[1])
	c.mu.Lock()
	conn := c.homes[tag]
	c.mu.Unlock()
	if conn == nil {
		conn = c.entry
	}
	for range 5 {
		v, err := conn.Do(args...)
		re, replied := errors.AsType[resp.Error](err)
		if !replied || !strings.HasPrefix(string(re), "MOVED ") {
			return v, err
		}
		fields := strings.Fields(string(re)) // MOVED slot host:port
		if len(fields) != 3 {
			return v, err
		}
		if conn, err = c.node(ctx, fields[2]); err != nil {
			return v, err
		}
		c.mu.Lock()
		c.homes[tag] = conn
		c.mu.Unlock()
	}
	return resp.Value{}, errors.New("the nodes of the cluster redirect in circles")
}

// doAll runs a command on every primary.
func (c *control) doAll(ctx context.Context, args []string) ([]resp.Value, error) {
	conns, err := c.primaries(ctx)
	if err != nil {
		return nil, err
	}
	var all []resp.Value
	for _, conn := range conns {
		v, err := conn.Do(args...)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (c *control) primaries(ctx context.Context) ([]*resp.Conn, error) {
	if c.h.DialNode == nil {
		return []*resp.Conn{c.entry}, nil
	}
	nodes, err := c.entry.Do("CLUSTER", "NODES")
	if _, replied := errors.AsType[resp.Error](err); replied {
		return []*resp.Conn{c.entry}, nil // it is no cluster, but under a Sentinel
	}
	if err != nil {
		return nil, err
	}
	var conns []*resp.Conn
	for line := range strings.Lines(nodes.Str) {
		// id host:port@bus,name flags ...
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.Contains(fields[2], "master") {
			continue
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		conn, err := c.node(ctx, addr)
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	if len(conns) == 0 {
		return nil, fmt.Errorf("CLUSTER NODES names no primary: %q", nodes.Str)
	}
	return conns, nil
}

func (c *control) node(ctx context.Context, addr string) (*resp.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.nodes[addr]; ok {
		return n, nil
	}
	nc, err := c.h.DialNode(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("Harness.DialNode of %q: %w", addr, err)
	}
	c.nodes[addr] = resp.NewConn(nc)
	return c.nodes[addr], nil
}

// hashTag returns the part of a key that decides where it is.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
