package conformance

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/leasecache/leasecache/internal/resp"
)

func TestAHarnessForAClusterWithoutDialNodeIsToldSo(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go func() {
		if _, _, err := resp.ReadCommand(bufio.NewReader(there)); err == nil {
			io.WriteString(there, "-MOVED 42 127.0.0.1:7001\r\n")
		}
	}()
	c, err := newControl(t.Context(), Harness{Dial: func(context.Context) (net.Conn, error) { return here, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := c.do(t.Context(), []string{"GET", "k"}); err == nil || !strings.Contains(err.Error(), "Harness.DialNode") {
		t.Errorf("got %v; want an error that names Harness.DialNode", err)
	}
}
