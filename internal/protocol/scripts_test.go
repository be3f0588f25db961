package protocol

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecache/leasecache/driver"
)

// split parts a script into the comment on its top and its code, without
// comments.
func split(s *driver.Script) (header, code string) {
	var body strings.Builder
	top := true
	for line := range strings.Lines(s.Source()) {
		comment := strings.HasPrefix(line, "--")
		if top = top && comment; top {
			header += strings.TrimPrefix(line, "--")
			continue
		}
		before, _, _ := strings.Cut(line, "--")
		fmt.Fprintln(&body, strings.TrimRight(before, " \n"))
	}
	return header, body.String()
}

func eachScript(t *testing.T, test func(t *testing.T, s *driver.Script, header, code string)) {
	t.Helper()
	for _, s := range Scripts {
		t.Run(s.Name(), func(t *testing.T) {
			header, code := split(s)
			test(t, s, header, code)
		})
	}
}

func TestScriptsAreTheFilesOfTheSameName(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range Scripts {
		names = append(names, s.Name()+".lua")
		source, err := os.ReadFile(s.Name() + ".lua")
		if err != nil || s.Source() != string(source) {
			t.Errorf("script %s is not the file of that name: %v", s.Name(), err)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, files); diff != "" {
		t.Errorf("scripts and files (-scripts +files):\n%s", diff)
	}
}

var (
	operand   = regexp.MustCompile(`(KEYS|ARGV)\[\d+\]`)
	returned  = regexp.MustCompile(`return (\{(\d)|(\d))`)
	called    = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_.]*)\(`)
	redisCall = regexp.MustCompile(`redis\.(p?call)\('([A-Z]+)'`)
)

func TestScriptsStateTheirKeysArgumentsAndRepliesOnTop(t *testing.T) {
	eachScript(t, func(t *testing.T, s *driver.Script, header, code string) {
		used, stated := map[string]bool{}, map[string]bool{}
		for _, o := range operand.FindAllString(code, -1) {
			used[o] = true
		}
		for _, o := range operand.FindAllString(header, -1) {
			stated[o] = true
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(stated))); diff != "" {
			t.Errorf("keys and arguments (-used +stated on top):\n%s", diff)
		}
		replies := returned.FindAllStringSubmatch(code, -1)
		if len(replies) == 0 {
			t.Fatal("no reply found in the code")
		}
		for _, r := range replies {
			want := "{" + r[2]
			if r[2] == "" {
				want = r[3] + " "
			}
			if !strings.Contains(header, want) {
				t.Errorf("the code has %q, the comment on top does not state a reply with %q", r[0], want)
			}
		}
	})
}

// libraries are the functions that scripts may call. All of them are on every
// server, and none of them reads a clock or a file, or draws a random number.
var libraries = []string{
	"redis.call", "redis.pcall", "redis.error_reply",
	"math.floor", "string.format", "string.sub", "tonumber", "type",
}

func TestScriptsCallOnlyWhatEveryServerHas(t *testing.T) {
	eachScript(t, func(t *testing.T, s *driver.Script, _, code string) {
		for _, call := range called.FindAllStringSubmatch(code, -1) {
			if !slices.Contains(libraries, call[1]) {
				t.Errorf("it calls %s", call[1])
			}
		}
		// A command with a name that is computed would escape the checks here.
		if all, plain := strings.Count(code, "redis.call(")+strings.Count(code, "redis.pcall("), len(redisCall.FindAllString(code, -1)); all != plain {
			t.Errorf("%d of %d commands are not written out", all-plain, all)
		}
		for _, word := range []string{"while ", "repeat", "for ", "goto", "function", "redis.log", "redis.sha1hex", "cjson", "_G"} {
			if strings.Contains(code, word) {
				t.Errorf("it has %q", word)
			}
		}
	})
}

func TestScriptsSendOnlyTheCommandsThatTheDocumentGrants(t *testing.T) {
	granted := map[string][]string{
		"read":       {"GET", "PTTL", "SET", "TIME"},
		"fill":       {"DEL", "GET", "PTTL", "SET", "SPUBLISH"},
		"release":    {"DEL", "GET", "SET", "SPUBLISH"},
		"invalidate": {"DEL", "GETRANGE", "PEXPIRE", "PTTL", "RENAME", "SPUBLISH", "TYPE"},
		"delete":     {"DEL", "SPUBLISH"},
		"drop":       {"DEL", "GET", "SET"},
	}
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, grant, ok := strings.Cut(string(doc), "ACL SETUSER ")
	if !ok {
		t.Fatal("docs/protocol.md has no ACL SETUSER")
	}
	grant, _, _ = strings.Cut(grant, "\n")
	eachScript(t, func(t *testing.T, s *driver.Script, _, code string) {
		sent := map[string]bool{}
		for _, call := range redisCall.FindAllStringSubmatch(code, -1) {
			sent[call[2]] = true
		}
		if diff := cmp.Diff(granted[s.Name()], slices.Sorted(maps.Keys(sent))); diff != "" {
			t.Errorf("commands (-want +sent):\n%s", diff)
		}
		for cmd := range sent {
			if !slices.Contains(strings.Fields(grant), "+"+strings.ToLower(cmd)) {
				t.Errorf("docs/protocol.md does not grant %s", cmd)
			}
		}
	})
}

// TestAfterItsFirstWriteAScriptRunsNothingThatCanFail looks at the lines after
// the first write. What may still be there by redis.call, and why:
func TestAfterItsFirstWriteAScriptRunsNothingThatCanFail(t *testing.T) {
	allowed := map[string][]string{
		"read":       {"PTTL lease"}, // not reached after SET, which makes the lease the caller's
		"fill":       {"PTTL value"}, // in the other branch
		"invalidate": {"DEL lease"},  // the user may DEL, as the first one shows
		"release":    {"DEL value"},  // of its only key, the lease; not reached when the SET wrote the mark
	}
	writes := []string{"SET", "DEL", "PEXPIRE", "RENAME"}
	names := strings.NewReplacer("KEYS[1]", "value", "KEYS[2]", "lease", "KEYS[3]", "stale copy")
	line := regexp.MustCompile(`redis\.(p?call)\('([A-Z]+)', (KEYS\[\d\])`)
	eachScript(t, func(t *testing.T, s *driver.Script, _, code string) {
		wrote := false
		var after []string
		for _, call := range line.FindAllStringSubmatch(code, -1) {
			if wrote && call[1] == "call" {
				after = append(after, call[2]+" "+names.Replace(call[3]))
			}
			wrote = wrote || slices.Contains(writes, call[2])
		}
		if !wrote {
			t.Error("no write found")
		}
		if diff := cmp.Diff(allowed[s.Name()], after); diff != "" {
			t.Errorf("commands after the first write that may fail the script (-allowed +found):\n%s", diff)
		}
	})
}

func TestScriptsHaveOnlyLocalVariables(t *testing.T) {
	assigned := regexp.MustCompile(`(?m)^\s*(local )?([a-z_]+) = `)
	eachScript(t, func(t *testing.T, s *driver.Script, _, code string) {
		local := map[string]bool{}
		for _, a := range assigned.FindAllStringSubmatch(code, -1) {
			local[a[2]] = local[a[2]] || a[1] != ""
			if !local[a[2]] {
				t.Errorf("%s is not local", a[2])
			}
		}
	})
}
