package customclient

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = "../../docs/adapters.md"

// The page promises an adapter in under 60 lines of code.
func TestTheAdapterHasFewerThan60LinesOfCode(t *testing.T) {
	const limit = 60
	n := linesOfCode(t, "customclient.go")
	if n >= limit {
		t.Errorf("customclient.go has %d lines of code, want fewer than %d", n, limit)
	}
	t.Logf("customclient.go has %d lines of code", n)
	others := 0
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") && f.Name() != "customclient.go" {
			others++
		}
	}
	if others > 0 {
		t.Errorf("%d more files of code that nobody counts", others)
	}
}

// linesOfCode counts the lines of a Go file that hold more than space and
// comments: package clause, imports and braces count.
func linesOfCode(t *testing.T, name string) int {
	t.Helper()
	src := readFile(t, name)
	fset := token.NewFileSet()
	file := fset.AddFile(name, -1, len(src))
	var s scanner.Scanner
	s.Init(file, []byte(src), func(pos token.Position, msg string) { t.Errorf("%s: %s", pos, msg) }, 0)
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // the scanner's own
		}
		first := file.Line(pos)
		for i := range strings.Count(lit, "\n") + 1 {
			lines[first+i] = true
		}
	}
}

func TestLinesOfCodeLeavesOutSpaceAndComments(t *testing.T) {
	name := t.TempDir() + "/a.go"
	src := "// Package a\npackage a\n\nvar a = `x\ny` // one\n/* two\nthree */ var b int\n\n// four\n"
	if err := os.WriteFile(name, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := linesOfCode(t, name); n != 4 {
		t.Errorf("counted %d lines, want 4: package, two of a, b", n)
	}
}

// The page shows a file in blocks of code, each after a line <!-- file NAME -->,
// with text between them.
func TestThePageShowsTheCodeOfTheFiles(t *testing.T) {
	block := regexp.MustCompile("(?m)^<!-- file (\\S+) -->\n```go\n((?s:.*?))^```$")
	shown := map[string][]string{}
	for _, m := range block.FindAllStringSubmatch(readFile(t, page), -1) {
		shown[m[1]] = append(shown[m[1]], m[2])
	}
	for _, name := range []string{"customclient.go", "conformance_test.go"} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(lines(readFile(t, name)), lines(strings.Join(shown[name], "\n"))); diff != "" {
				t.Errorf("%s does not show examples/customclient/%s (-file +page):\n%s", page, name, diff)
			}
			delete(shown, name)
		})
	}
	for name := range shown {
		t.Errorf("%s shows the file %s, which no test compares", page, name)
	}
}

func lines(text string) []string { return strings.Split(text, "\n") }

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")))
}
