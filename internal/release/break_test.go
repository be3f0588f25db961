package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	modmodule "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// repo is a copy of this repository, to be changed.
type repo struct {
	*testing.T
	dir string
}

func copyRepo(t *testing.T) *repo {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &repo{t, filepath.Join(t.TempDir(), "repo")}
	if err := copyTracked(root, r.dir); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q")
	r.commit()
	return r
}

func (r *repo) git(args ...string) string {
	r.Helper()
	out, err := git(r.dir, args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

func (r *repo) commit() {
	r.Helper()
	r.git("add", "-A", "-f")
	r.git("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "test")
}

func (r *repo) read(name string) string {
	r.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		r.Fatal(err)
	}
	return string(b)
}

func (r *repo) write(name, text string) {
	r.Helper()
	name = filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

func (r *repo) remove(name string) {
	r.Helper()
	if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
		r.Fatal(err)
	}
}

// replace replaces all that is there once at least.
func (r *repo) replace(name, from, to string) {
	r.Helper()
	text := r.read(name)
	if !strings.Contains(text, from) {
		r.Fatalf("%s does not hold %q any more: change this test", name, from)
	}
	r.write(name, strings.ReplaceAll(text, from, to))
}

// require adds a requirement to a module, with the sums of another module that
// has it.
func (r *repo) require(dir, requirement, sumsOf string) {
	r.Helper()
	r.write(dir+"/go.mod", r.read(dir+"/go.mod")+"\nrequire "+requirement+"\n")
	r.write(dir+"/go.sum", r.read(dir+"/go.sum")+r.read(sumsOf+"/go.sum"))
}

// requiredBy returns what a module's go.mod says of the module of that path, as
// "path version".
func (r *repo) requiredBy(dir, path string) string {
	r.Helper()
	for line := range strings.Lines(r.read(dir + "/go.mod")) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == path {
			return f[0] + " " + f[1]
		}
	}
	r.Fatalf("%s/go.mod does not require %s any more: change this test", dir, path)
	return ""
}

// use makes the release and uses a module of it, or the old adapter ("old").
func (r *repo) use(dir string) (finding, error) {
	r.Helper()
	c, err := r.checker(r.TempDir())
	if err != nil {
		return finding{}, err
	}
	if dir == "old" {
		return c.consumeOld(r.Context())
	}
	return c.consume(r.Context(), r.module(c, dir))
}

func (r *repo) checker(work string) (*checker, error) {
	rel, err := build(r.dir, work, "v0.1.0")
	if err != nil {
		return nil, err
	}
	// Only the embedded server is read from here. What is wrong with others is seen before they would dial.
	return newChecker(rel, work, "localhost:1")
}

func (r *repo) module(c *checker, dir string) module {
	r.Helper()
	m, ok := c.r.table.by(module{dir: dir}.path())
	if !ok {
		r.Fatalf("there is no module %s", dir)
	}
	return m
}

// The embedded adapter stands for all that are as they should be, because it
// needs no server: what the others lack of that is in TestRelease.
func TestAModuleThatIsAsItShouldBePasses(t *testing.T) {
	f, err := copyRepo(t).use("adapters/miniredis")
	if err != nil {
		t.Fatal(err)
	}
	if f.cgo || f.reads != "read through the cache by miniredis" {
		t.Errorf("found %s", f)
	}
}

func TestWhatIsWrongWithAReleaseIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(r *repo)
		use   string
		want  string
	}{
		{
			"an adapter requires testcontainers", func(r *repo) {
				r.require("adapters/redigo", r.requiredBy("servertest", "github.com/testcontainers/testcontainers-go"), "servertest")
			},
			"adapters/redigo", "the module graph of its users holds github.com/testcontainers/testcontainers-go",
		},
		{
			"an adapter requires another client", func(r *repo) {
				r.require("adapters/redigo", r.requiredBy("adapters/goredis", "github.com/redis/go-redis/v9"), "adapters/goredis")
			},
			"adapters/redigo", "the module graph of its users holds github.com/redis/go-redis/v9",
		},
		{
			"an adapter has lost its client", func(r *repo) {
				r.replace("modules.txt", "github.com/gomodule/redigo", "github.com/gomodule/other")
			},
			"adapters/redigo", "the module graph of its users does not hold github.com/gomodule/other",
		},
		{
			"an adapter requires a module that is not released", func(r *repo) {
				r.write("adapters/redigo/go.mod", r.read("adapters/redigo/go.mod")+"\nrequire "+rootPath+"/tests v0.0.0\n")
			},
			"adapters/redigo", "adapters/redigo/go.mod: it requires " + rootPath + "/tests, which is not released",
		},
		{
			"an adapter replaces its client", func(r *repo) {
				r.write("adapters/redigo/go.mod", r.read("adapters/redigo/go.mod")+"\nreplace github.com/gomodule/redigo => ../fork\n")
			},
			"adapters/redigo", "it replaces github.com/gomodule/redigo: users' builds would not",
		},
		{
			"an adapter brings the suite into programs", func(r *repo) {
				r.write("adapters/miniredis/suite.go", "package miniredis\n\nimport _ \""+rootPath+"/conformance\"\n")
				r.commit()
			},
			"adapters/miniredis", "conformance, which is for tests, is built into its users' programs",
		},
		{
			"the core needs a module of others", func(r *repo) {
				r.require(".", r.requiredBy("internal/release", "golang.org/x/mod"), "internal/release")
				r.replace("store.go", "package leasecache\n", "package leasecache\n\nimport _ \"golang.org/x/mod/semver\"\n")
			},
			".", "its packages need golang.org/x/mod/semver, which is not of the standard library",
		},
		{
			"a file is left out of a zip", func(r *repo) { r.write("internal/protocol/.gitattributes", "read.lua export-ignore\n"); r.commit() },
			".", ".: its zip lacks the file internal/protocol/read.lua",
		},
		{
			"a package is in a module of its own", func(r *repo) {
				r.write("internal/protocol/go.mod", "module "+rootPath+"/internal/protocol\n")
				r.commit()
			},
			"adapters/miniredis", "internal/protocol",
		},
		{
			"a file is not tracked", func(r *repo) { r.git("rm", "-q", "--cached", "adapters/miniredis/dsn.go") },
			"adapters/miniredis", "undefined: parseDSN",
		},
		{
			"there is no license", func(r *repo) { r.remove("LICENSE") },
			".", ".: its zip lacks a LICENSE",
		},
		{
			"a module has a license of its own", func(r *repo) { r.write("adapters/redigo/LICENSE", "All rights reserved.\n"); r.commit() },
			"adapters/redigo", "adapters/redigo: its LICENSE is not the root's",
		},
		{
			"a large file is in a zip", func(r *repo) {
				b := make([]byte, maxZip)
				rand.Read(b)
				r.write("adapters/redigo/redigo.test", string(b))
				r.commit()
			},
			"adapters/redigo", "adapters/redigo: its zip has",
		},
		{
			"a released module has no user", func(r *repo) {
				r.replace("modules.txt", "benchmarks            internal", "benchmarks            released")
			},
			"benchmarks", "benchmarks is released, but nothing here knows how its users use it",
		},
		{
			"a module needs cgo that is not its client", func(r *repo) {
				r.write("adapters/miniredis/cgo.go", "package miniredis\n\n// int one(void) { return 1; }\nimport \"C\"\n\nconst needed = 1\n\nvar one = C.one()\n")
				r.replace("adapters/miniredis/dsn.go", "package miniredis\n", "package miniredis\n\nimport \"fmt\"\n\nvar _ = fmt.Sprint(needed)\n")
				r.replace("adapters/miniredis/dsn.go", "import (\n\t\"fmt\"\n", "import (\n")
				r.commit()
			},
			"adapters/miniredis", "it does not compile without cgo, and " + rootPath + "/adapters/miniredis has it: only its client may",
		},
		{
			"a driver has another name", func(r *repo) {
				r.replace("adapters/miniredis/miniredis.go", `Register("miniredis"`, `Register("other"`)
			},
			"adapters/miniredis", `unknown driver "miniredis"`,
		},
		{
			"values are not cached", func(r *repo) {
				r.replace("internal/protocol/fill.lua", "redis.call('SET', KEYS[1]", "redis.call('SET', KEYS[1] .. 'x'")
			},
			"adapters/miniredis", `want "one", hit, cached`,
		},
		{
			"the core breaks an older adapter", func(r *repo) { r.replace("driver/errors.go", "func CallError(", "func CallErrors(") },
			"old", "the adapter of " + oldVersion + " does not work with the core of now",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := copyRepo(t)
			tt.spoil(r)
			if _, err := r.use(tt.use); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got the error %v\nwant one with %q", err, tt.want)
			}
		})
	}
}

func TestAGoSumThatLacksASumIsNotTidy(t *testing.T) {
	const dir = "adapters/miniredis"
	for _, lacks := range []bool{false, true} {
		r := copyRepo(t)
		if lacks {
			client := r.requiredBy(dir, "github.com/alicebob/miniredis/v2")
			r.replace(dir+"/go.sum", client+" h1:", rootPath+"/none v1.0.0 h1:") // which is dropped as one of ours
		}
		c, err := r.checker(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.checkTidy(t.Context(), r.module(c, dir)); (err != nil) != lacks {
			t.Errorf("with a sum missing: %v; checkTidy = %v", lacks, err)
		}
	}
}

// A client with cgo costs its own users, and they are told.
func TestAClientThatNeedsCgoIsBuiltWithIt(t *testing.T) {
	r := copyRepo(t)
	const client = "example.com/cgoclient"
	files := map[string]string{
		"go.mod":  "module " + client + "\n\ngo 1.26.0\n",
		"LICENSE": "text\n",
		"c.go":    "package cgoclient\n\n// int one(void) { return 1; }\nimport \"C\"\n\nvar One = int(C.one())\n",
	}
	dir, work := t.TempDir(), t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := modzip.CreateFromDir(&b, modmodule.Version{Path: client, Version: "v1.0.0"}, dir); err != nil {
		t.Fatal(err)
	}
	file, err := serve(filepath.Join(work, "proxy"), client, "v1.0.0", []byte(files["go.mod"]), b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	zipSum, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(files["go.mod"])), nil
	})
	if err != nil {
		t.Fatal(err)
	}

	const m = "adapters/miniredis"
	r.write(m+"/go.mod", r.read(m+"/go.mod")+"\nrequire "+client+" v1.0.0\n")
	r.write(m+"/go.sum", r.read(m+"/go.sum")+client+" v1.0.0 "+zipSum+"\n"+client+" v1.0.0/go.mod "+modSum+"\n")
	r.write(m+"/cgo.go", "package miniredis\n\nimport \""+client+"\"\n\nvar _ = cgoclient.One\n")
	r.replace("modules.txt", "adapters/miniredis    released  -", "adapters/miniredis    released  "+client)
	r.commit()

	c, err := r.checker(work)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.consume(t.Context(), r.module(c, m))
	if err != nil {
		t.Fatal(err)
	}
	if !f.cgo || !strings.Contains(f.String(), "needs cgo") || f.reads == "" {
		t.Errorf("found %s; want a read, with cgo", f)
	}
}
