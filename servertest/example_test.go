package servertest_test

import (
	"net"
	"testing"

	"github.com/leasecache/leasecache/servertest"
)

// A test takes a server in one line. It is gone when the test ends.
func ExampleStart() {
	_ = func(t *testing.T) { // as in func TestMyClient(t *testing.T)
		srv := servertest.Start(t, servertest.Named(t, "valkey-9"))

		conn, err := net.Dial("tcp", srv.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	// Output:
}

// A test of a client may run on every server of the table.
func ExampleServers() {
	_ = func(t *testing.T) { // as in func TestMyClient(t *testing.T)
		for _, spec := range servertest.Servers() {
			t.Run(spec.Name, func(t *testing.T) {
				t.Parallel()
				srv := servertest.Start(t, spec)
				t.Logf("%s %s answers at %s", srv.Vendor, srv.Version, srv.Addr)
			})
		}
	}
	// Output:
}

// Options give arguments and files to the server's program.
func ExampleArgs() {
	_ = func(t *testing.T) { // as in func TestMyClient(t *testing.T)
		srv := servertest.Start(t, servertest.Named(t, "redis-8"),
			servertest.Args("--maxmemory", "3mb", "--maxmemory-policy", "noeviction"))
		t.Log(srv.Addr)
	}
	// Output:
}
