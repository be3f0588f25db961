package main

import (
	"archive/zip"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/mod/sumdb/dirhash"
)

// The adapter for go-redis as it was when the first part of leasecache was
// complete, as the zip that this program made of it, which is what a proxy keeps
// for ever. It is kept as that rather than looked up in git's history: a shallow
// clone has none, and no rename in the tree reaches into a zip. Its sum is
// checked, so that it cannot change.
const (
	oldDir     = "adapters/goredis"
	oldVersion = "v0.0.1"
	oldSum     = "h1:Dp3z4MtncoIyNfSs/wZV585dZkAy7mafhbGCtpJEJhU="
)

//go:embed old/goredis.zip
var oldZip []byte

// oldCoreMod is the go.mod of the core that the adapter was released with. That
// core is not selected, so Go asks for no more of it.
//
//go:embed old/core.mod
var oldCoreMod []byte

// consumers holds the programs of users: core, adapter and servertest, each with
// what it shares with the others.
//
//go:embed consumers
var consumers embed.FS

// dsns are the DSNs of drivers that do not take redis://host:port/0.
var dsns = map[string]string{"miniredis": "miniredis:"}

// A checker uses the modules of a release as users do: in a module of their own,
// outside of any workspace, from a proxy.
type checker struct {
	r    *release
	work string
	addr string // of the server that programs read through the cache of
	env  []string
}

// newChecker returns a checker that works in the directory work. It has a cache
// of modules of its own: what is served here must not stay in the user's, where
// it would pass for the real version. Modules of others come from the user's
// cache, or else from where his settings say.
func newChecker(r *release, work, addr string) (*checker, error) {
	work, err := filepath.EvalSymlinks(work)
	if err != nil {
		return nil, err
	}
	user, err := goEnv(r.tree)
	if err != nil {
		return nil, err
	}
	proxies := []string{fileURL(r.proxy), fileURL(filepath.Join(user["GOMODCACHE"], "cache", "download")), user["GOPROXY"]}
	c := &checker{r: r, work: work, addr: addr, env: os.Environ()}
	for name, value := range user {
		c.env = append(c.env, name+"="+value)
	}
	c.env = append(c.env,
		"GOENV=off", // what go env -w has set is in user
		"GOWORK=off",
		"GOFLAGS=-mod=mod -modcacherw -trimpath", // -trimpath, or nothing that is built here would be found in the build cache next time
		"GOMODCACHE="+filepath.Join(work, "modcache"),
		"GOPROXY="+strings.Join(proxies, ","),
		// Empty and not "none": when it is set, Go looks for our modules in the cache before it asks the proxy, finds the core
		// there, and concludes that there is no module below it (golang/go#61237).
		"GOPRIVATE=", "GONOPROXY=",
		"GONOSUMDB="+strings.Trim(rootPath+","+user["GONOSUMDB"], ","),
	)
	return c, nil
}

// goEnv returns the user's settings for the go command, as far as they are of
// use here, or not the default.
func goEnv(dir string) (map[string]string, error) {
	all := map[string]string{}
	for _, args := range [][]string{{"-changed"}, {"GOPROXY", "GOMODCACHE", "GONOSUMDB"}} {
		cmd := exec.Command("go", append([]string{"env", "-json"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go env: %w", err)
		}
		if err := json.Unmarshal(out, &all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func fileURL(dir string) string {
	p := filepath.ToSlash(dir)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/ on Windows
	}
	return (&url.URL{Scheme: "file", Path: p}).String()
}

// A finding is what is told of a module that is as it should be.
type finding struct {
	modules int  // of others, in the graph
	cgo     bool // needs cgo
	reads   string
}

func (f finding) String() string {
	cgo := "no cgo"
	if f.cgo {
		cgo = "needs cgo"
	}
	return fmt.Sprintf("brings %d modules of others, %s; %s", f.modules, cgo, f.reads)
}

// said finds the line in which a program says that it has read.
var said = regexp.MustCompile(`(?m)read through the cache.*$`)

// consume gets the core and m into an empty module, and reads through the cache.
func (c *checker) consume(ctx context.Context, m module) (finding, error) {
	u := c.user(m.dir)
	get := []string{rootPath + "@" + c.r.version}
	if m.dir != "." {
		get = append(get, m.path()+"@"+c.r.version)
	}
	core, _ := c.r.table.by(rootPath)
	if err := u.begin(ctx, get, core.file(c.r.tree, "go.sum"), m.file(c.r.tree, "go.sum")); err != nil {
		return finding{}, err
	}

	var f finding
	var err error
	switch {
	case m.dir == ".":
		err = errors.Join(c.writeProgram(u, "core", m), c.writeExample(u))
	case path.Dir(m.dir) == "adapters":
		err = c.writeProgram(u, "adapter", m)
	case m.dir == "servertest", m.dir == "compress", m.dir == "near":
		err = errors.Join(c.writeProgram(u, m.dir, m), c.writeExample(u))
	case path.Dir(m.dir) == "cmd":
		f.modules, err = u.checkGraph(ctx, c.r, m, m.path())
		if err == nil {
			f.reads, err = u.install(ctx, m, c.r.version)
		}
		return f, err
	default:
		return f, fmt.Errorf("%s is released, but nothing here knows how its users use it: add a program to internal/release/consumers", m.dir)
	}
	if err != nil {
		return f, err
	}
	if f.modules, err = u.checkGraph(ctx, c.r, m, "./..."); err != nil {
		return f, err
	}
	if f.cgo, err = u.compile(ctx, m); err != nil {
		return f, err
	}
	if m.dir == "servertest" {
		f.reads, err = u.reads(ctx, "test", "-count=1", "-v", ".")
	} else {
		f.reads, err = u.reads(ctx, "run", ".", c.dsn(m))
	}
	return f, err
}

// consumeOld gets the adapter of long ago, and the core of now.
func (c *checker) consumeOld(ctx context.Context) (finding, error) {
	m, ok := c.r.table.by(rootPath + "/" + oldDir)
	if !ok {
		return finding{}, fmt.Errorf("%s is not in modules.txt", oldDir)
	}
	sum, err := c.serveOld(m)
	if err != nil {
		return finding{}, err
	}
	u := c.user("old")
	if err := u.begin(ctx, []string{rootPath + "@" + c.r.version, m.path() + "@" + oldVersion}, sum); err != nil {
		return finding{}, err
	}
	if err := c.writeProgram(u, "adapter", m); err != nil {
		return finding{}, err
	}
	var f finding
	if f.modules, err = u.checkGraph(ctx, c.r, m, "./..."); err != nil {
		return f, err
	}
	// Lest it was another adapter, or another core, that works.
	got, err := u.goes(ctx, "list", "-m", "-f", "{{.Version}}", rootPath, m.path())
	if want := c.r.version + "\n" + oldVersion + "\n"; err != nil || got != want {
		return f, errors.Join(err, fmt.Errorf("core and adapter are at %q, want %q", got, want))
	}
	if f.cgo, err = u.compile(ctx, m); err != nil {
		return f, fmt.Errorf("the adapter of %s does not work with the core of now. If that is meant, see RELEASING.md: %w", oldVersion, err)
	}
	f.reads, err = u.reads(ctx, "run", ".", c.dsn(m))
	return f, err
}

// serveOld has the proxy serve the old adapter, and returns the file of its go.sum.
func (c *checker) serveOld(m module) (string, error) {
	name := filepath.Join(c.work, "old.zip")
	if err := os.WriteFile(name, oldZip, 0o644); err != nil {
		return "", err
	}
	if sum, err := dirhash.HashZip(name, dirhash.Hash1); err != nil || sum != oldSum {
		return "", errors.Join(err, fmt.Errorf("internal/release/old/goredis.zip has the sum %s, want %s: it must stay what it was", sum, oldSum))
	}
	archive, err := zip.NewReader(bytes.NewReader(oldZip), int64(len(oldZip)))
	if err != nil {
		return "", err
	}
	read := func(name string) ([]byte, error) {
		f, err := archive.Open(m.path() + "@" + oldVersion + "/" + name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(f)
	}
	mod, err := read("go.mod")
	if err != nil {
		return "", err
	}
	if _, err := serve(c.r.proxy, m.path(), oldVersion, mod, oldZip); err != nil {
		return "", err
	}
	if _, err := serve(c.r.proxy, rootPath, oldVersion, oldCoreMod, nil); err != nil {
		return "", err
	}
	sum, err := read("go.sum")
	if err != nil {
		return "", err
	}
	name = filepath.Join(c.work, "old.sum")
	return name, os.WriteFile(name, sum, 0o644)
}

// checkTidy runs go mod tidy on a module of the release's tree, without a
// workspace: what is tagged must be complete, also without replace lines.
func (c *checker) checkTidy(ctx context.Context, m module) error {
	u := &user{dir: m.file(c.r.tree, "."), env: append(slices.Clone(c.env), "GOFLAGS=-modcacherw", "GOSUMDB=off")}
	_, err := u.goes(ctx, "mod", "tidy", "-diff")
	return err
}

func (c *checker) dsn(m module) string {
	name := path.Base(m.dir)
	if dsn, ok := dsns[name]; ok {
		return dsn
	}
	return "redis://" + c.addr + "/0"
}

// writeProgram writes the program of that name.
func (c *checker) writeProgram(u *user, name string, m module) error {
	for from, to := range map[string]string{
		"consumers/read.go.tmpl":         "read.go",
		"consumers/" + name + ".go.tmpl": name + ".go",
	} {
		if name == "servertest" {
			to = strings.TrimSuffix(to, ".go") + "_test.go"
		}
		text, err := consumers.ReadFile(from)
		if err != nil {
			return err
		}
		t, err := template.New(from).Parse(string(text))
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, map[string]string{"Path": m.path(), "Name": path.Base(m.dir)}); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(u.dir, to), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeExample gives the user a client of his own.
func (c *checker) writeExample(u *user) error {
	const name = "customclient/customclient.go"
	return copyFile(filepath.Join(c.r.tree, "examples", filepath.FromSlash(name)), filepath.Join(u.dir, filepath.FromSlash(name)))
}

// A user is a module outside of the repository.
type user struct {
	dir string
	env []string
}

func (c *checker) user(name string) *user {
	return &user{dir: filepath.Join(c.work, "users", strings.NewReplacer(".", "core", "/", "-").Replace(name)), env: c.env}
}

// begin makes the empty module and gets the modules. The sums of others' modules
// are those of the files, which are committed: nobody else has to be asked.
func (u *user) begin(ctx context.Context, get []string, sums ...string) error {
	if err := os.MkdirAll(u.dir, 0o755); err != nil {
		return err
	}
	if _, err := u.goes(ctx, "mod", "init", "example.com/user"); err != nil {
		return err
	}
	var sum []byte
	for _, name := range sums {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		sum = append(sum, data...)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "go.sum"), sum, 0o644); err != nil {
		return err
	}
	_, err := u.goes(ctx, append([]string{"get"}, get...)...)
	return err
}

// checkGraph checks the modules that the user of m gets, and the packages that
// are built into what he builds, and returns the number of modules of others.
func (u *user) checkGraph(ctx context.Context, r *release, m module, pkgs string) (int, error) {
	out, err := u.goes(ctx, "list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all")
	if err != nil {
		return 0, err
	}
	var problems []error
	others, client := 0, false
	for p := range strings.FieldsSeq(out) {
		if ours(p) {
			if of, ok := r.table.by(p); !ok || of.kind != kindReleased {
				problems = append(problems, fmt.Errorf("the module graph of its users holds %s, which is not released", p))
			}
			continue
		}
		others++
		client = client || m.may(p)
		if slices.ContainsFunc(r.table.watched(), func(w string) bool { return strings.HasPrefix(p, w) }) && !m.may(p) {
			problems = append(problems, fmt.Errorf("the module graph of its users holds %s", p))
		}
	}
	if m.mayHold != "-" && !client {
		problems = append(problems, fmt.Errorf("the module graph of its users does not hold %s", m.mayHold))
	}

	if m.dir == "." {
		pkgs = rootPath + "/..."
	}
	out, err = u.goes(ctx, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkgs)
	if err != nil {
		return others, errors.Join(append(problems, err)...)
	}
	for p := range strings.FieldsSeq(out) {
		switch {
		case p == "example.com/user" || strings.HasPrefix(p, "example.com/user/"):
		case ours(p):
			if p == rootPath+"/conformance" && m.dir != "." && m.dir != "servertest" {
				problems = append(problems, fmt.Errorf("%s, which is for tests, is built into its users' programs", p))
			}
		case m.dir == ".":
			problems = append(problems, fmt.Errorf("its packages need %s, which is not of the standard library", p))
		case slices.ContainsFunc(r.table.watched(), func(w string) bool { return strings.HasPrefix(p, w) }) && !m.may(p):
			problems = append(problems, fmt.Errorf("%s is built into its users' programs", p))
		}
	}
	return others, errors.Join(problems...)
}

// compile builds and vets the user's packages, without cgo if that works. It
// reports whether it does not: only m's client may be why.
func (u *user) compile(ctx context.Context, m module) (cgo bool, err error) {
	plain := &user{dir: u.dir, env: append(slices.Clone(u.env), "CGO_ENABLED=0")}
	if _, err = plain.goes(ctx, "vet", "./..."); err == nil {
		u.env = plain.env
		return false, nil
	}
	with := &user{dir: u.dir, env: append(slices.Clone(u.env), "CGO_ENABLED=1")}
	out, listErr := with.goes(ctx, "list", "-deps", "-f", "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}", "./...")
	if listErr != nil || strings.TrimSpace(out) == "" {
		return false, errors.Join(err, listErr)
	}
	for p := range strings.FieldsSeq(out) {
		if !m.may(p) {
			return true, fmt.Errorf("it does not compile without cgo, and %s has it: only its client may", p)
		}
	}
	u.env = with.env
	if _, err = u.goes(ctx, "vet", "./..."); err != nil {
		return true, fmt.Errorf("it needs cgo, and so a C compiler and CGO_ENABLED unset or 1: %w", err)
	}
	return true, nil
}

// install installs the command as go install does for users, who have no go.sum
// and need no C compiler, and runs its demo.
func (u *user) install(ctx context.Context, m module, version string) (string, error) {
	bin := filepath.Join(u.dir, "bin")
	// What it needs was checked with the sums in begin.
	by := &user{dir: u.dir, env: append(slices.Clone(u.env), "GOBIN="+bin, "GOFLAGS=-modcacherw -trimpath", "GOSUMDB=off", "CGO_ENABLED=0")}
	if _, err := by.goes(ctx, "install", m.path()+"@"+version); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, path.Base(m.dir)), "demo")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s demo: %w\n%s", path.Base(m.dir), err, out)
	}
	return "installed; its demo ran", nil
}

// reads runs the user's program, and returns what it says about its reading.
func (u *user) reads(ctx context.Context, args ...string) (string, error) {
	out, err := u.goes(ctx, args...)
	line := said.FindString(out)
	if err == nil && line == "" {
		err = fmt.Errorf("go %s: the program does not say that it has read through the cache:\n%s", strings.Join(args, " "), out)
	}
	return line, err
}

// goes runs the go command and returns what it prints on its standard output.
func (u *user) goes(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = u.dir
	cmd.Env = append(slices.Clone(u.env), "PWD="+u.dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}
