//go:build release

package main

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasecache/leasecache/servertest"
)

// TestRelease uses every released module as its users would get it.
func TestRelease(t *testing.T) {
	version := cmp.Or(os.Getenv("LEASECACHE_RELEASE_VERSION"), "v0.1.0")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	r, err := build(root, work, version)
	if err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, servertest.Named(t, "valkey-9"))
	c, err := newChecker(r, work, s.Addr)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range r.table.released() {
		t.Run(m.tag(version), func(t *testing.T) {
			f, err := c.consume(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			z := r.zips[m.path()]
			t.Logf("%s: zip of %d files, %d KiB; %s", m.tag(version), z.files, z.size>>10, f)
		})
	}
	t.Run("an older adapter", func(t *testing.T) {
		f, err := c.consumeOld(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s/%s with the core at %s: %s", oldDir, oldVersion, version, f)
	})
	t.Run("go.mod and go.sum of the release are tidy", func(t *testing.T) {
		for _, m := range r.table {
			if err := c.checkTidy(t.Context(), m); err != nil {
				t.Errorf("%s: %v", m.dir, err)
			}
		}
	})
}
