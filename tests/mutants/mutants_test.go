//go:build mutants

// Package mutants shows that the tests can fail: it removes the conditions of
// the scripts and the checks of the core that the guarantees rest on, one at a
// time, and expects a named test to turn red.
package mutants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasecache/leasecache/servertest"
)

// mutant is one place in the code, changed.
type mutant struct {
	name      string
	guarantee string // what the condition is there for
	file      string // from the root of the repository
	old, new  string // old stands once in the file
	test      string // a case of the conformance suite, or a test of module tests if it starts with "Test"
}

// limit is for how long a mutant may run. One that hangs is red as well.
const limit = 3 * time.Minute

func TestNoMutantSurvives(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	checkCoverage(t, root)

	s := servertest.Start(t, servertest.Named(t, "valkey-9"))
	env := append(os.Environ(),
		"LEASECACHE_MUTANTS_ADDR="+s.Addr, // all share it
		"LEASECACHE_PATIENCE=5s",          // what is expected to happen happens at once, or never
		"LEASECACHE_REPORT=",
	)
	dir := t.TempDir()

	// What is red must be so because of the mutant. And no mutant may be there that
	// was not asked for.
	binary := filepath.Join(dir, "suite.test")
	build(t, root, "./mutants/suite", binary, weave(t, root, dir))
	out, err := run(t, root, binary, env, ".")
	if err != nil {
		t.Fatalf("the tests are red without a mutant:\n%s", out)
	}
	for _, m := range catalogue {
		if !regexp.MustCompile(`(?m)^\s*--- PASS: ` + line(m.test)).MatchString(out) {
			t.Fatalf("%s did not run:\n%s", m.test, out)
		}
	}

	verdicts := make([]string, len(catalogue))
	t.Run("mutants", func(t *testing.T) {
		for i, m := range catalogue {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				env := slices.Concat(env, m.environment(t, root, i))
				verdicts[i] = m.test
				if out, err := run(t, root, binary, env, pattern(m.test)); err == nil {
					verdicts[i] = "SURVIVED " + m.test
					t.Errorf("the mutant survived %s:\n%s", m.test, out)
				}
			})
		}
	})

	red := 0
	fmt.Printf("%-54s  %-9s  %s\n", "mutant", "guarantee", "turned red")
	for i, m := range catalogue {
		if verdicts[i] == m.test {
			red++
		}
		fmt.Printf("%-54s  %-9s  %s\n", m.name, m.guarantee, cmp.Or(verdicts[i], "NOT RUN"))
	}
	fmt.Printf("mutants: %d of %d turned a named test red\n", red, len(catalogue))
}

// environment returns what makes the build run with the mutant.
func (m mutant) environment(t *testing.T, root string, number int) []string {
	t.Helper()
	script, ok := strings.CutSuffix(filepath.Base(m.file), ".lua")
	if !ok {
		return []string{mutantEnv + "=" + strconv.Itoa(number)}
	}
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"LEASECACHE_MUTANT_SCRIPT=" + script, "LEASECACHE_MUTANT_SOURCE=" + m.change(t, string(text))}
}

// change returns the text of the file, changed.
func (m mutant) change(t *testing.T, text string) string {
	t.Helper()
	if n := strings.Count(text, m.old); n != 1 {
		t.Fatalf("mutant %q: %q stands %d times in %s; want once", m.name, m.old, n, m.file)
	}
	return strings.Replace(text, m.old, m.new, 1)
}

func build(t *testing.T, root, pkg, binary, overlay string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags=mutants", "-overlay", overlay, "-o", binary, pkg)
	cmd.Dir = filepath.Join(root, "tests")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the mutants must compile: %v\n%s", err, out)
	}
}

// run runs one test; the error says that it was red.
func run(t *testing.T, root, binary string, env []string, pattern string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", pattern, "-test.v", "-test.count", "1")
	cmd.Dir = filepath.Join(root, "tests")
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err
}

// line is how the line begins that says what became of a test. The last part of
// the name may be shorter than what it stands for.
func line(name string) string {
	if !strings.HasPrefix(name, "Test") {
		return regexp.QuoteMeta("TestConformance/cases/"+name) + " "
	}
	return regexp.QuoteMeta(name)
}

// pattern selects a test.
func pattern(name string) string {
	if top, rest, _ := strings.Cut(name, "/"); strings.HasPrefix(top, "Test") {
		return "^" + top + "$/" + rest
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return "^TestConformance$/^cases$/" + strings.Join(parts, "/")
}

var condition = regexp.MustCompile(`\b(if|elseif|while|and|or)\b`)

// checkCoverage fails if a condition of a script has no mutant: a line with one
// must be part of the text that a mutant replaces.
func checkCoverage(t *testing.T, root string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "internal/protocol/*.lua"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		rel = filepath.ToSlash(rel)
		offset := 0
		for line := range strings.Lines(string(source)) {
			code, _, _ := strings.Cut(line, "--")
			for _, at := range condition.FindAllStringIndex(code, -1) {
				pos := offset + at[0]
				if !slices.ContainsFunc(catalogue, func(m mutant) bool {
					start := strings.Index(string(source), m.old)
					return m.file == rel && start >= 0 && start <= pos+len("if ") && pos < start+len(m.old)
				}) {
					t.Errorf("no mutant removes the condition at %s: %s", rel, strings.TrimSpace(line))
				}
			}
			offset += len(line)
		}
	}
}
