package conformance

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasecache/leasecache/internal/resp"
)

// proxyConn is a client's connection and its counterpart to the server. readClient forwards commands, readServer
// takes the replies, and writeClient delivers them: it is on its own so that a client which writes a long pipeline before
// it reads is served, as a server does.
type proxyConn struct {
	p              *Proxy
	node           string
	client, server net.Conn
	handshake      [][]byte // commands that a late copy must repeat; only for readClient

	mu         sync.Mutex // guards what follows; never held while reading or writing
	changed    sync.Cond  // out or cut changed
	slots      []*slot    // commands whose reply is not yet in out, oldest first
	subscribed bool       // the client sent a SUBSCRIBE, so arrays may be messages
	out        net.Buffers
	cut        bool  // the client's connection is to be closed after out
	left       bool  // nothing more comes from the client
	serverErr  error // nothing more comes from the server
}

// slot is the place of a command's reply in the order of replies.
type slot struct {
	command  []string
	rule     *Rule // what caught the command, or nil
	request  *held // the request that was held, or nil
	reply    []byte
	answered bool
	hold     bool // keep the reply
	cut      bool // cut the connection in place of the reply
}

// readClient forwards the client's commands until its connection ends.
func (c *proxyConn) readClient() {
	defer func() {
		c.mu.Lock()
		c.left = true
		c.settle()
		c.mu.Unlock()
	}()
	r := bufio.NewReaderSize(c.client, 64<<10)
	for {
		command, raw, err := resp.ReadCommand(r)
		if err != nil {
			if errors.Is(err, resp.ErrProtocol) {
				c.p.t.Errorf("conformance: the proxy does not understand the client: %v", err)
			}
			return
		}
		s := &slot{command: command, rule: c.p.catch(command)}
		if s.rule != nil && !c.request(s, raw) {
			return
		}
		switch strings.ToUpper(command[0]) {
		case "HELLO", "AUTH", "SELECT":
			c.handshake = append(c.handshake, raw)
		}
		c.p.count(command)
		c.enqueue(s)
		if _, err := c.server.Write(raw); err != nil {
			c.server.Close() // so that nobody waits for the reply
			return
		}
	}
}

// request does to a caught request what its rule says, and reports whether it is to be forwarded now.
func (c *proxyConn) request(s *slot, raw []byte) bool {
	switch r := s.rule; r.action.kind {
	case cutBefore:
		r.hit(nil)
		s.answered, s.cut = true, true
		c.enqueue(s)
		return false
	case lateCopy:
		h := &held{done: make(chan struct{}), drop: func() {}}
		h.release = func(ctx context.Context) { h.finish(c.p.deliver(ctx, c.node, c.handshake, s.command, raw)) }
		r.hit(h)
		s.answered, s.cut = true, true
		c.enqueue(s)
		return false
	case hang:
		r.hit(nil)
		select {
		case <-r.removed:
		case <-c.p.ctx.Done():
		}
		return false
	case delay:
		r.hit(nil)
		timer := time.NewTimer(r.action.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.p.ctx.Done():
			return false
		}
	case holdRequest:
		gate := make(chan struct{})
		s.request = &held{done: make(chan struct{}), drop: func() { close(gate) }}
		s.request.release = func(context.Context) { close(gate) }
		r.hit(s.request)
		select {
		case <-gate:
		case <-c.p.ctx.Done():
			return false
		}
	}
	return true
}

// enqueue takes the next place in the order of replies.
func (c *proxyConn) enqueue(s *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isSubscription(s.command[0]) {
		c.subscribed = true
	}
	if c.serverErr != nil && s.request != nil {
		s.request.finish(resp.Value{}, c.serverErr)
	}
	c.slots = append(c.slots, s)
	c.settle()
}

// readServer takes what the server sends until its connection ends.
func (c *proxyConn) readServer() {
	r := bufio.NewReaderSize(c.server, 64<<10)
	for {
		v, raw, err := resp.ReadRaw(r)
		if err == nil {
			c.answer(v, raw)
			continue
		}
		if errors.Is(err, resp.ErrProtocol) {
			c.p.t.Errorf("conformance: the proxy does not understand the server: %v", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.serverErr = err
		c.cut = true
		c.changed.Signal()
		for _, s := range c.slots {
			if s.request != nil && !s.answered {
				s.request.finish(resp.Value{}, err)
			}
		}
		return
	}
}

// answer handles a message of the server.
func (c *proxyConn) answer(v resp.Value, raw []byte) {
	c.mu.Lock()
	s := c.answered(v)
	if s == nil {
		c.emit(raw)
		c.mu.Unlock()
		return
	}
	var h *held
	if s.rule != nil {
		switch s.rule.action.kind {
		case dropReply:
			s.cut = true
		case holdReply:
			s.hold = true
			open := func() {
				c.mu.Lock()
				s.hold = false
				c.settle()
				c.mu.Unlock()
			}
			h = &held{done: make(chan struct{}), release: func(context.Context) { open() }, drop: open}
			h.finish(v, nil)
		}
	}
	c.mu.Unlock()

	s.reply = raw // nobody reads it before answered is set
	if c.p.rewrite {
		s.reply = c.p.readdress(s.command, v, raw)
	}
	if s.request != nil {
		s.request.finish(v, nil)
	} else if s.rule != nil && (s.cut || h != nil) {
		s.rule.hit(h) // before the client can notice
	}
	c.mu.Lock()
	s.answered = true
	c.settle()
	c.mu.Unlock()
}

// answered returns the slot that v is the reply to, or nil if v is a push message, or one that nobody asked for.
func (c *proxyConn) answered(v resp.Value) *slot {
	i := slices.IndexFunc(c.slots, func(s *slot) bool { return !s.answered })
	if i < 0 {
		return nil
	}
	message := ""
	if (v.Kind == resp.Push || c.subscribed && v.Kind == resp.Array) && len(v.List) > 0 {
		message = v.List[0].Str
	}
	switch {
	case isSubscription(message):
		// The first confirmation is the reply to the command, further ones are like messages.
		if !strings.EqualFold(c.slots[i].command[0], message) {
			return nil
		}
	case v.Kind == resp.Push, message == "message", message == "pmessage", message == "smessage":
		return nil
	}
	return c.slots[i]
}

// settle moves to out what can be delivered in order, and closes the server's connection when nobody needs it. A
// command that a rule caught needs it even after the client left: it must be executed, and be seen to be.
func (c *proxyConn) settle() {
	for len(c.slots) > 0 && c.slots[0].answered && !c.slots[0].hold {
		s := c.slots[0]
		c.slots = c.slots[1:]
		if s.cut {
			c.cut = true
			c.changed.Signal()
		} else {
			c.emit(s.reply)
		}
	}
	if c.left && !slices.ContainsFunc(c.slots, func(s *slot) bool { return s.rule != nil }) {
		c.server.Close()
	}
}

func (c *proxyConn) emit(raw []byte) {
	if !c.cut {
		c.out = append(c.out, raw)
		c.changed.Signal()
	}
}

// writeClient writes to the client until its connection is to be closed.
func (c *proxyConn) writeClient() {
	defer c.client.Close()
	for cut := false; !cut; {
		c.mu.Lock()
		for len(c.out) == 0 && !c.cut {
			c.changed.Wait()
		}
		out := c.out
		cut, c.out = c.cut, nil
		c.mu.Unlock()
		if _, err := out.WriteTo(c.client); err != nil {
			c.mu.Lock()
			c.cut, cut = true, true
			c.mu.Unlock()
		}
	}
}

// isSubscription reports whether name is that of a command which is confirmed by a message of the same name.
func isSubscription(name string) bool {
	switch strings.ToLower(name) {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}
