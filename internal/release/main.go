// Command release prepares releases of the modules in modules.txt, which all
// have one version. RELEASING.md says when to run it; make release-check tests
// in advance what it does.
//
//	go run . prepare v0.2.0    makes every go.mod and go.sum of the tree those of the release
//	go run . tags v0.2.0       prints the tags of the release
//	go run . proxy v0.2.0 DIR  makes DIR/proxy a module proxy of the release, for GOPROXY=file://DIR/proxy
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	want := map[string]int{"prepare": 2, "tags": 2, "proxy": 3}
	if len(args) == 0 || want[args[0]] != len(args) {
		return fmt.Errorf(`got %q, want "prepare VERSION", "tags VERSION" or "proxy VERSION DIRECTORY"`, strings.Join(args, " "))
	}
	version := args[1]
	if err := checkVersion(version); err != nil {
		return err
	}
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("run this in a clone of the repository: git rev-parse: %w", err)
	}
	root := strings.TrimSpace(string(out))
	switch args[0] {
	case "tags":
		t, err := readTable(root)
		if err != nil {
			return err
		}
		for _, m := range t.released() {
			fmt.Println(m.tag(version))
		}
		return nil
	case "proxy":
		dir, err := filepath.Abs(args[2])
		if err != nil {
			return err
		}
		_, err = build(root, dir, version)
		return err
	}
	return prepare(root, version)
}

// prepare writes the go.mod and go.sum files of the release into the tree.
func prepare(root, version string) error {
	status, err := git(root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return fmt.Errorf("the tree has changes: commit or stash them, so that the release differs from a commit by its go.mod and go.sum files alone:\n%s", status)
	}
	work, err := os.MkdirTemp("", "leasecache-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r, err := build(root, work, version)
	if err != nil {
		return err
	}
	for _, m := range r.table {
		for _, name := range []string{"go.mod", "go.sum"} {
			if err := copyFile(m.file(r.tree, name), m.file(root, name)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}
