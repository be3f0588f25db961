package histories

import (
	"errors"
	"net"
	"net/rpc"
	"path/filepath"
	"sync"
	"testing"
)

// A source has a version of every key, which begins with 0 and which only grows.
// The processes of a site load from it and write to it.
type source struct {
	mu       sync.Mutex
	versions map[string]int64
	writes   []Operation
}

// startSource starts a source. It returns the socket at which it answers.
func startSource(t *testing.T) (s *source, socket string) {
	s = &source{versions: map[string]int64{}}
	server := rpc.NewServer()
	if err := server.RegisterName("Source", &sourceCalls{s}); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(t.TempDir(), "source")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			wg.Go(func() { server.ServeConn(c) }) // until the process ends
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return s, socket
}

// sourceCalls are what processes can ask of the source.
type sourceCalls struct{ s *source }

// Load returns the version of a key.
func (c *sourceCalls) Load(key string, version *int64) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	*version = c.s.versions[key]
	return nil
}

// Write makes the next version of a key.
func (c *sourceCalls) Write(key string, _ *struct{}) error {
	call := now()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.versions[key]++
	c.s.writes = append(c.s.writes, Operation{Kind: Write, Key: key, Version: c.s.versions[key], Call: call, Return: now()})
	return nil
}
