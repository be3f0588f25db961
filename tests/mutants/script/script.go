//go:build mutants

// Package script changes one of the cache's scripts in a test build, when the environment names it.
package script

import (
	"os"
	"slices"

	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/protocol"
)

// LEASECACHE_MUTANT_SCRIPT is the name of the script that is changed, and
// LEASECACHE_MUTANT_SOURCE what it is instead.
func init() {
	name, ok := os.LookupEnv("LEASECACHE_MUTANT_SCRIPT")
	if !ok {
		return
	}
	i := slices.IndexFunc(protocol.Scripts, func(s *driver.Script) bool { return s.Name() == name })
	if i < 0 {
		panic("LEASECACHE_MUTANT_SCRIPT is " + name + ", which is the name of no script")
	}
	*protocol.Scripts[i] = *driver.NewScript(name, os.Getenv("LEASECACHE_MUTANT_SOURCE"))
}
