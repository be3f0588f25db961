package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	modmodule "golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// maxZip is the largest zip of a module in bytes. What Go allows is far more,
// but code of this size would be a file that was not meant to be released.
const maxZip = 1 << 20

// A release is what users would get of a tree at a version.
type release struct {
	version string
	table   table
	tree    string // a copy of the repository, with the release's go.mod and go.sum files
	proxy   string // the directory of a module proxy that serves the released modules
	zips    map[string]zipped
}

// zipped is the zip of a module.
type zipped struct {
	file  string
	size  int64
	files int
}

// build makes the release in the directory work. It takes the files that git
// tracks, as they are in the tree now: what is not tracked is not released.
func build(root, work, version string) (*release, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	t, err := readTable(root)
	if err != nil {
		return nil, err
	}
	r := &release{
		version: version,
		table:   t,
		tree:    filepath.Join(work, "tree"),
		proxy:   filepath.Join(work, "proxy"),
		zips:    map[string]zipped{},
	}
	if err := copyTracked(root, r.tree); err != nil {
		return nil, err
	}
	// A repository of its own, so that files are chosen as they are from the real one, by git archive.
	if _, err := git(r.tree, "init", "-q"); err != nil {
		return nil, err
	}

	mods, err := r.rewriteMods()
	if err != nil {
		return nil, err
	}
	order, err := releaseOrder(t, mods)
	if err != nil {
		return nil, err
	}
	for _, m := range order {
		// A go.sum holds the sums of what the module requires, also of our own modules, whose zips were made before.
		if err := r.rewriteSum(m, mods[m.path()]); err != nil {
			return nil, err
		}
		if err := r.commit(); err != nil {
			return nil, err
		}
		if err := r.zip(m); err != nil {
			return nil, fmt.Errorf("%s: %w", m.dir, err)
		}
	}
	return r, nil
}

// rewriteMods makes the go.mod files require our modules at the version of the
// release. Released ones lose the replace lines for them: users' builds ignore
// those, except that go install refuses a command whose module has any.
func (r *release) rewriteMods() (map[string]*modfile.File, error) {
	mods := map[string]*modfile.File{}
	for _, m := range r.table {
		name := m.file(r.tree, "go.mod")
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s has no go.mod that git tracks: %w", m.dir, err)
		}
		f, err := modfile.Parse(path.Join(m.dir, "go.mod"), data, nil)
		if err != nil {
			return nil, err
		}
		if err := r.rewriteMod(m, f); err != nil {
			return nil, fmt.Errorf("%s/go.mod: %w", m.dir, err)
		}
		f.Cleanup()
		if data, err = f.Format(); err != nil {
			return nil, err
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return nil, err
		}
		mods[m.path()] = f
	}
	return mods, nil
}

func (r *release) rewriteMod(m module, f *modfile.File) error {
	for _, req := range f.Require {
		if !ours(req.Mod.Path) {
			continue
		}
		if of, ok := r.table.by(req.Mod.Path); !ok || of.kind != kindReleased {
			return fmt.Errorf("it requires %s, which is not released", req.Mod.Path)
		}
		if err := f.AddRequire(req.Mod.Path, r.version); err != nil {
			return err
		}
	}
	if m.kind != kindReleased {
		return nil
	}
	for _, rep := range slices.Clone(f.Replace) {
		if !ours(rep.Old.Path) {
			return fmt.Errorf("it replaces %s: users' builds would not", rep.Old.Path)
		}
		if err := f.DropReplace(rep.Old.Path, rep.Old.Version); err != nil {
			return err
		}
	}
	if len(f.Exclude) > 0 {
		return fmt.Errorf("it excludes %v: users' builds would not", f.Exclude[0].Mod)
	}
	return nil
}

// releaseOrder returns the released modules, each after those that it requires.
func releaseOrder(t table, mods map[string]*modfile.File) (table, error) {
	var order table
	rest := t.released()
	for len(rest) > 0 {
		i := slices.IndexFunc(rest, func(m module) bool {
			return !slices.ContainsFunc(mods[m.path()].Require, func(req *modfile.Require) bool {
				_, waits := rest.by(req.Mod.Path)
				return waits
			})
		})
		if i < 0 {
			return nil, fmt.Errorf("the modules require each other in a circle: %v", rest)
		}
		order = append(order, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return order, nil
}

// rewriteSum puts the sums of our modules into go.sum, in their place by path.
func (r *release) rewriteSum(m module, mod *modfile.File) error {
	var sums []string
	for _, req := range mod.Require {
		if !ours(req.Mod.Path) {
			continue
		}
		file := r.zips[req.Mod.Path].file
		zipSum, err := dirhash.HashZip(file, dirhash.Hash1)
		if err != nil {
			return err
		}
		modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
			return os.Open(strings.TrimSuffix(file, ".zip") + ".mod")
		})
		if err != nil {
			return err
		}
		sums = append(sums,
			fmt.Sprintf("%s %s %s\n", req.Mod.Path, req.Mod.Version, zipSum),
			fmt.Sprintf("%s %s/go.mod %s\n", req.Mod.Path, req.Mod.Version, modSum))
	}
	slices.Sort(sums)

	name := m.file(r.tree, "go.sum")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && len(sums) == 0 {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if p, _, _ := strings.Cut(line, " "); !ours(p) {
			lines = append(lines, line)
		}
	}
	at := slices.IndexFunc(lines, func(line string) bool { return line > rootPath })
	if at < 0 {
		at = len(lines)
	}
	return os.WriteFile(name, []byte(strings.Join(slices.Insert(lines, at, sums...), "")), 0o644)
}

func (r *release) commit() error {
	if _, err := git(r.tree, "add", "-A", "-f"); err != nil {
		return err
	}
	_, err := git(r.tree, "-c", "user.name=release", "-c", "user.email=release@localhost", "-c", "commit.gpgsign=false",
		"commit", "-q", "--allow-empty", "-m", r.version)
	return err
}

// zip makes the module's zip as Go makes it from the repository, checks it, and
// has the proxy serve it.
func (r *release) zip(m module) error {
	dir := m.dir
	if dir == "." {
		dir = ""
	}
	var b bytes.Buffer
	// Among others this checks the limits that Go sets, and takes the root's LICENSE for a module that has none.
	if err := modzip.CreateFromVCS(&b, modmodule.Version{Path: m.path(), Version: r.version}, r.tree, "HEAD", dir); err != nil {
		return err
	}
	mod, err := os.ReadFile(m.file(r.tree, "go.mod"))
	if err != nil {
		return err
	}
	name, err := serve(r.proxy, m.path(), r.version, mod, b.Bytes())
	if err != nil {
		return err
	}
	files, err := r.checkZip(m, b.Bytes())
	r.zips[m.path()] = zipped{file: name, size: int64(b.Len()), files: files}
	return err
}

// checkZip compares the zip with the tree, and returns how many files it holds.
func (r *release) checkZip(m module, data []byte) (int, error) {
	if len(data) > maxZip {
		return 0, fmt.Errorf("its zip has %d bytes, more than %d: which file is not meant to be in it?", len(data), maxZip)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return 0, err
	}
	prefix := m.path() + "@" + r.version + "/"
	have := map[string]*zip.File{}
	for _, f := range archive.File {
		have[strings.TrimPrefix(f.Name, prefix)] = f
	}
	want, err := r.filesOf(m)
	if err != nil {
		return 0, err
	}
	for _, name := range want {
		if have[name] == nil {
			err = errors.Join(err, fmt.Errorf("its zip lacks the file %s", name))
		}
	}
	if have["LICENSE"] == nil {
		return 0, errors.Join(err, errors.New("its zip lacks a LICENSE: the root has none for it"))
	}
	license, readErr := readZipped(have["LICENSE"])
	if readErr != nil {
		return 0, readErr
	}
	root, readErr := os.ReadFile(filepath.Join(r.tree, "LICENSE"))
	if readErr != nil {
		return 0, readErr
	}
	if !bytes.Equal(license, root) {
		err = errors.Join(err, errors.New("its LICENSE is not the root's"))
	}
	return len(have), err
}

// filesOf returns the files of a module: those in its directory, without those
// of modules further down.
func (r *release) filesOf(m module) ([]string, error) {
	var files []string
	top := m.file(r.tree, ".")
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != top && (err == nil || d.Name() == ".git") {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(top, name)
		files = append(files, filepath.ToSlash(rel))
		return err
	})
	return files, err
}

// serve adds a version of a module to the directory of a module proxy. Without
// a zip only its go.mod is served. It returns the name of the zip's file.
func serve(proxy, modPath, version string, mod, zipData []byte) (string, error) {
	escaped, err := modmodule.EscapePath(modPath)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return "", err
	}
	files := map[string][]byte{".info": info, ".mod": mod}
	if zipData != nil {
		files[".zip"] = zipData
	}
	for suffix, data := range files {
		if err := os.WriteFile(filepath.Join(dir, version+suffix), data, 0o644); err != nil {
			return "", err
		}
	}
	list, err := os.OpenFile(filepath.Join(dir, "list"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(list, version)
	return filepath.Join(dir, version+".zip"), errors.Join(err, list.Close())
}

// copyTracked copies the files that git tracks, as they are in the tree.
func copyTracked(root, to string) error {
	out, err := git(root, "ls-files", "-z")
	if err != nil {
		return fmt.Errorf("the files to release are those that git tracks: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(out, "\x00"), "\x00") {
		from := filepath.Join(root, filepath.FromSlash(name))
		info, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and the deletion not committed yet
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file: no module's zip would hold it", name)
		}
		if err := copyFile(from, filepath.Join(to, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

func readZipped(f *zip.File) ([]byte, error) {
	rc, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return io.ReadAll(rc)
}

// git runs git in dir, in whatever repository its caller was run.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"}, args...)...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out), nil
}
