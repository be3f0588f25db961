//go:build mutants

// Package page keeps docs/mutants.md, which says who catches which mutant, as the catalogues have it.
package page

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of mutants into docs/mutants.md")

// Table is a table of Markdown: its head and its rows.
type Table [][]string

func (t Table) String() string {
	var b strings.Builder
	for i, row := range t {
		for _, cell := range row {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// Check fails the test if the page, in the repository at root, does not have the table between the lines that name it. With
// -update it writes it there.
func Check(t *testing.T, root, name string, table Table) {
	t.Helper()
	file := filepath.Join(root, "docs", "mutants.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n\n", "\n<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(string(text), begin)
	is, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	want := table.String()
	if is == want {
		return
	}
	if !*update {
		t.Fatalf("docs/mutants.md does not have the mutants of the catalogue: write them with go test -tags=mutants -run=%s . -args -update", t.Name())
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
