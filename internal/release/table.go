package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// rootPath is the path of the root's module, with which those of the others begin.
const rootPath = "github.com/leasecache/leasecache"

// The kinds of modules: modules.txt explains them.
const (
	kindReleased = "released"
	kindInternal = "internal"
)

// A module is a line of modules.txt.
type module struct {
	dir     string // from the root; "." is the root
	kind    string
	mayHold string // the start of the paths of the client that it may hold, or "-"
}

func (m module) path() string {
	if m.dir == "." {
		return rootPath
	}
	return rootPath + "/" + m.dir
}

func (m module) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}

// file returns where a file of the module is in a tree of the repository.
func (m module) file(tree, name string) string {
	return filepath.Join(tree, filepath.FromSlash(m.dir), filepath.FromSlash(name))
}

// may reports whether the module's graph may hold the module of that path.
func (m module) may(path string) bool {
	return m.mayHold != "-" && strings.HasPrefix(path, m.mayHold)
}

// table is modules.txt.
type table []module

func readTable(root string) (table, error) {
	data, err := os.ReadFile(filepath.Join(root, "modules.txt"))
	if err != nil {
		return nil, err
	}
	var t table
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 3 {
			return nil, fmt.Errorf("modules.txt: want directory, kind and client: %q", strings.TrimSpace(line))
		}
		t = append(t, module{dir: f[0], kind: f[1], mayHold: f[2]})
	}
	if len(t.released()) == 0 {
		return nil, errors.New("modules.txt: no module is released")
	}
	return t, nil
}

func (t table) released() table {
	return slices.DeleteFunc(slices.Clone(t), func(m module) bool { return m.kind != kindReleased })
}

// by returns the module of that path.
func (t table) by(path string) (module, bool) {
	i := slices.IndexFunc(t, func(m module) bool { return m.path() == path })
	if i < 0 {
		return module{}, false
	}
	return t[i], true
}

// watched returns the starts of the paths of all clients that some module may
// hold: the others must not.
func (t table) watched() []string {
	var all []string
	for _, m := range t {
		if m.mayHold != "-" {
			all = append(all, m.mayHold)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ours reports whether path is that of a module of this repository.
func ours(path string) bool {
	return path == rootPath || strings.HasPrefix(path, rootPath+"/")
}

func checkVersion(version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version || semver.Build(version) != "" {
		return fmt.Errorf("%q is not a version: want one such as v0.2.0 or v0.2.0-rc.1", version)
	}
	return nil
}
