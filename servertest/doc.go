// Package servertest starts real Valkey and Redis servers for tests.
//
//	srv := servertest.Start(t, servertest.Named(t, "valkey-9"))
//	client := dial(srv.Addr)
//
// Each call starts a server of its own, empty and without persistence, and stops it when the test ends. [Servers] is the
// table of all servers that there are. [StartCluster] and [StartSentinel] start several that know of each other. The option
// [TLS] makes a server ask clients for certificates, which a [CA] signs.
//
// It is for tests of leasecache and for those of others: an author of a client or of an adapter gets the servers that the
// suite of package conformance runs on. All it needs is a container engine that can pull the official images. There is no
// set-up beside the call, and no clean-up. It requires testcontainers-go, so require it where only tests are: in a module
// that others import, put such tests into a module of their own.
//
// # Where a server comes from
//
// The first of these that there is, where NAME is the name in the table in capitals with '_' for every other character
// that is not a letter or a digit (VALKEY_9, VALKEY_8_1):
//
//  1. LEASECACHE_ADDR_NAME=host:port, a server that already runs. It is shared, never emptied, and cannot be killed,
//     paused, restarted or given arguments.
//  2. LEASECACHE_IMAGE_NAME, a container image to use instead of the table's.
//  3. LEASECACHE_SERVER_NAME=/path/to/binary, started as a process.
//  4. The image that scripts/images.sh in leasecache's repository built, if the container engine has it.
//  5. The official image, pulled if the engine does not have it.
//  6. valkey-server or redis-server from PATH, started as a process, if its version is the table's.
//
// Whatever it is, INFO must report the vendor and the version of the table, or the test fails. A server that cannot be had
// fails the test and says how to get it; nothing is ever skipped.
//
// # Containers
//
// Containers are run by testcontainers-go. Before its first use this package sets two of its variables in the environment
// of the test process, each only if it is not set:
//
//   - TESTCONTAINERS_RYUK_DISABLED=true: the reaper is one more image to pull. In its place, the first start in a process
//     removes what processes that have ended without a clean-up left behind.
//   - TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1, only where /.dockerenv exists and the engine is reached by a socket:
//     testcontainers-go then dials the bridge's gateway, which does not answer where the engine runs beside the test.
//     Where the engine is outside the test's own container, set it to the address at which published ports are reached.
//
// Servers are published on the loopback interface if that is where the engine is, and keep their port when restarted.
package servertest
