package servertest

import (
	"slices"
	"strings"
	"testing"
)

// A Spec is one row of the table of servers: what to start, and what it must turn out to be.
type Spec struct {
	// Name names the row, as in "valkey-8.1". The names of the row's environment variables are made from it.
	Name string
	// Vendor is "valkey" or "redis". INFO must report it.
	Vendor string
	// Version is what the version that INFO reports must begin with, compared part by part: "8" is 8.0.2, "8.1" is not 8.10.0.
	Version string
	// Image is the official container image.
	Image string
	// LocalImage is the image that scripts/images.sh builds where the official one cannot be pulled. It is preferred.
	LocalImage string
	// Binary is the name of the server's program.
	Binary string
}

// table is the one list of servers. scripts/images.sh repeats its names and images, and a test compares the two.
var table = []Spec{
	{Name: "valkey-9", Vendor: "valkey", Version: "9", Image: "valkey/valkey:9", LocalImage: "leasecache-test/valkey-9", Binary: "valkey-server"},
	{Name: "valkey-8.1", Vendor: "valkey", Version: "8.1", Image: "valkey/valkey:8.1", LocalImage: "leasecache-test/valkey-8.1", Binary: "valkey-server"},
	{Name: "redis-8", Vendor: "redis", Version: "8", Image: "redis:8", LocalImage: "leasecache-test/redis-8", Binary: "redis-server"},
	{Name: "redis-7", Vendor: "redis", Version: "7", Image: "redis:7", LocalImage: "leasecache-test/redis-7", Binary: "redis-server"},
}

// Servers returns the table of servers, newest first within each vendor. The slice is the caller's.
func Servers() []Spec {
	return slices.Clone(table)
}

// Named returns the row with that name, and fails the test if there is none.
func Named(t testing.TB, name string) Spec {
	t.Helper()
	var names []string
	for _, spec := range table {
		if spec.Name == name {
			return spec
		}
		names = append(names, spec.Name)
	}
	t.Fatalf("servertest: unknown server %q: the table has %s", name, strings.Join(names, ", "))
	return Spec{} // for a TB whose Fatalf returns
}

// env returns the name of the row's variable of a kind ("ADDR", "IMAGE" or "SERVER").
func (s Spec) env(kind string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(s.Name))
	return "LEASECACHE_" + kind + "_" + name
}

// String returns vendor and version, for messages.
func (s Spec) String() string {
	return s.Vendor + " " + s.Version
}

// matches reports whether a server of that vendor and version is one of this row.
func (s Spec) matches(vendor, version string) bool {
	return vendor == s.Vendor && strings.HasPrefix(version+".", s.Version+".")
}
