package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"
)

func TestPrepareMakesTheFilesOfTheRelease(t *testing.T) {
	r := copyRepo(t)
	const version = "v0.3.0-rc.1"
	if err := prepare(r.dir, version); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(r.git("status", "--porcelain")) {
		if name := strings.TrimSpace(line[2:]); filepath.Base(name) != "go.mod" && filepath.Base(name) != "go.sum" {
			t.Errorf("prepare changed %s", name)
		}
	}
	table, err := readTable(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range table {
		mod, sum := r.read(m.dir+"/go.mod"), ""
		if m.dir != "." {
			sum = r.read(m.dir + "/go.sum")
		}
		replaced := strings.Contains(mod, "=> ")
		if want := m.kind != kindReleased && strings.Contains(mod, rootPath+" "); replaced != want {
			t.Errorf("%s/go.mod has replace lines: %v, want %v", m.dir, replaced, want)
		}
		for line := range strings.Lines(mod) {
			f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
			if len(f) < 2 || !ours(f[0]) || f[1] == "=>" || strings.Contains(line, "=>") {
				continue
			}
			if f[1] != version {
				t.Errorf("%s/go.mod requires %s %s, want %s", m.dir, f[0], f[1], version)
			}
			has := strings.Contains(sum, "\n"+f[0]+" "+version+" h1:") && strings.Contains(sum, "\n"+f[0]+" "+version+"/go.mod h1:")
			if want := m.kind == kindReleased; has != want && m.dir != "." {
				t.Errorf("%s/go.sum has sums of %s: %v, want %v", m.dir, f[0], has, want)
			}
		}
	}

	// From the commit of a release, the next one is made in the same way.
	r.commit()
	if err := prepare(r.dir, "v0.3.0"); err != nil {
		t.Fatal(err)
	}
	mod, sum := r.read("cmd/leasecache/go.mod"), r.read("cmd/leasecache/go.sum")
	if strings.Contains(mod, version) || strings.Contains(sum, version) {
		t.Errorf("%s is left in cmd/leasecache:\n%s\n%s", version, mod, sum)
	}
	if !strings.Contains(sum, rootPath+"/adapters/goredis v0.3.0 h1:") {
		t.Errorf("cmd/leasecache/go.sum does not have the adapter it requires:\n%s", sum)
	}
}

func TestPrepareLeavesATreeWithChangesAlone(t *testing.T) {
	r := copyRepo(t)
	r.write("LICENSE", "changed\n")
	if err := prepare(r.dir, "v0.3.0"); err == nil || !strings.Contains(err.Error(), "commit or stash them") {
		t.Errorf("prepare = %v", err)
	}
	if status := r.git("status", "--porcelain"); status != " M LICENSE\n" {
		t.Errorf("the tree has changed:\n%s", status)
	}
}

// The sums in the go.sum files of a release are known before there is anything
// to download. Here Go downloads it from the tags.
func TestTheZipsAreThoseThatGoMakesOfTheTags(t *testing.T) {
	r := copyRepo(t)
	const version = "v0.3.0"
	if err := prepare(r.dir, version); err != nil {
		t.Fatal(err)
	}
	r.commit()
	rel, err := build(r.dir, t.TempDir(), version)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, m := range rel.table.released() {
		r.git("tag", m.tag(version))
	}
	for _, m := range rel.table.released() {
		u := &user{dir: dir, env: append(os.Environ(),
			"GOWORK=off", "GOFLAGS=-modcacherw", "GOENV=off", "GOPROXY=direct", "GOSUMDB=off",
			"GOMODCACHE="+filepath.Join(dir, "modcache"),
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+fileURL(r.dir)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+rootPath,
			"GIT_ALLOW_PROTOCOL=file:https")}
		out, err := u.goes(t.Context(), "mod", "download", "-json", m.path()+"@"+version)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := dirhash.HashZip(rel.zips[m.path()].file, dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, `"Sum": "`+sum+`"`) {
			t.Errorf("the sum of %s is %s, but Go has from the tag:\n%s", m.dir, sum, out)
		}
	}
}

func TestTagsNameTheDirectory(t *testing.T) {
	for _, tt := range []struct{ dir, want string }{
		{".", "v0.2.0"},
		{"adapters/goredis", "adapters/goredis/v0.2.0"},
	} {
		if got := (module{dir: tt.dir}).tag("v0.2.0"); got != tt.want {
			t.Errorf("the tag of %s is %q, want %q", tt.dir, got, tt.want)
		}
	}
}

func TestVersionsAreWholeOnes(t *testing.T) {
	for version, ok := range map[string]bool{
		"v0.2.0": true, "v1.0.0-rc.1": true,
		"": false, "0.2.0": false, "v0.2": false, "v0.2.0+x": false, "latest": false,
	} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("checkVersion(%q) = %v", version, err)
		}
	}
}

func TestMistakesOnTheCommandLineAreNamed(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, `got "", want "prepare VERSION"`},
		{[]string{"publish", "v0.2.0"}, `got "publish v0.2.0", want`},
		{[]string{"prepare"}, `got "prepare", want`},
		{[]string{"tags", "0.2.0"}, `"0.2.0" is not a version`},
	} {
		if err := run(tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("run(%q) = %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestATableThatCannotBeReadIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"a line of two words":  {". released -\nadapters/x released\n", `modules.txt: want directory, kind and client: "adapters/x released"`},
		"nothing to release":   {"# nothing\ntests internal -\n", "modules.txt: no module is released"},
		"modules in a circle":  {". released -\na released -\n", "the modules require each other in a circle"},
		"a module without mod": {"b released -\n", "b has no go.mod that git tracks"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &repo{t, t.TempDir()}
			r.git("init", "-q")
			r.write("modules.txt", tt.text)
			r.write("LICENSE", "text\n")
			r.write("go.mod", "module "+rootPath+"\n\ngo 1.26.0\n\nrequire "+rootPath+"/a v0.0.0\n")
			r.write("a/go.mod", "module "+rootPath+"/a\n\ngo 1.26.0\n\nrequire "+rootPath+" v0.0.0\n")
			r.commit()
			if _, err := build(r.dir, t.TempDir(), "v0.1.0"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("build = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestOnlyACloneIsReleased(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "modules.txt"), []byte(". released -\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := build(dir, t.TempDir(), "v0.1.0"); err == nil || !strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("build = %v", err)
	}
}
