package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxRequired is how many lines of code an adapter may have for what every
// adapter must have: the constructor, its entry in the registry, Eval, the
// sorting of errors and the conversion of replies. Comments, blank lines, package
// clauses and imports do not count, so that splitting a file costs nothing.
const maxRequired = 150

// optionalFiles are the files of an adapter that a custom one can do without. Each
// has the one ability that it is named after; "" is for what package driver has
// no interface for. Everything else in an adapter counts as required.
var optionalFiles = map[string]string{
	"batch.go":    "EvalBatch",
	"bound.go":    "Bound",
	"cluster.go":  "", // which of the nodes of a cluster
	"dsn.go":      "", // what a DSN may say
	"faults.go":   "", // what keeps faults of the client away
	"get.go":      "Get",
	"getbatch.go": "GetBatch",
	"getbytes.go": "GetBytes",
	"open.go":     "Close", // a client by DSN, which is closed
	"ping.go":     "Ping",

	"subscribe.go": "Subscribe", // and what it returns
	"track.go":     "Track",     // the same
}

// requiredMethods are methods of the interfaces of package driver that are no
// ability of an Evaler, or that a constructor needs.
var requiredMethods = []string{"Eval", "Adopt", "Open", "Validate", "Add", "Remove"}

func TestTheRequiredPartOfAnAdapterIsSmall(t *testing.T) {
	abilities := slices.DeleteFunc(driverMethods(t), func(m string) bool { return slices.Contains(requiredMethods, m) })
	if want := []string{"Bound", "Close", "EvalBatch", "Get", "GetBatch", "GetBytes", "Ping", "Subscribe", "Track"}; !isSubset(want, abilities) {
		t.Fatalf("package driver has the abilities %q, want at least %q, or this test shows nothing", abilities, want)
	}
	for _, dir := range clientAdapters(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			lines, has, err := adapterSize(dir, abilities)
			if err != nil {
				t.Fatal(err)
			}
			sum := 0
			for _, n := range lines {
				sum += n
			}
			t.Logf("%d lines of code: %v", sum, lines)
			if sum > maxRequired {
				t.Errorf("the required part has %d lines of code, in %v; want at most %d: make it simpler, or move an optional ability into a file of its own and list that in optionalFiles", sum, lines, maxRequired)
			}
			if len(lines) == 0 || sum < 50 {
				t.Errorf("found %d lines of code in %v: that is no adapter, so this test shows nothing", sum, lines)
			}
			for file, methods := range has {
				for _, m := range methods {
					if (file == "subscribe.go" || file == "track.go") && m == "Close" {
						continue // of what it returns
					}
					if ability, ok := optionalFiles[file]; !ok || ability != m && file != "open.go" {
						t.Errorf("%s declares %s: an optional ability has a file of its own", file, m)
					}
				}
			}
		})
	}
}

// clientAdapters returns the directories of the adapters: those below adapters/ that
// modules.txt lets hold a client. (miniredis holds none: it is a server too.)
func clientAdapters(t *testing.T) []string {
	t.Helper()
	table, err := os.ReadFile("../modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) == 3 && strings.HasPrefix(f[0], "adapters/") && f[2] != "-" {
			dirs = append(dirs, filepath.Join("..", filepath.FromSlash(f[0])))
		}
	}
	if len(dirs) < 4 {
		t.Fatalf("modules.txt names the adapters %q; want at least 4", dirs)
	}
	return dirs
}

// driverMethods returns the methods of the exported interfaces of package driver.
func driverMethods(t *testing.T) []string {
	t.Helper()
	methods := map[string]bool{}
	files, err := filepath.Glob("../driver/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					for _, name := range m.Names {
						methods[name.Name] = true
					}
				}
			}
			return false
		})
	}
	return slices.Sorted(maps.Keys(methods))
}

// adapterSize returns how many lines of code the required files of an adapter have,
// and which of the abilities each of its files declares methods for.
func adapterSize(dir string, abilities []string) (lines map[string]int, has map[string][]string, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	lines, has = map[string]int{}, map[string][]string{}
	for _, path := range names {
		file := filepath.Base(path)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		n, methods, err := codeLines(path, src)
		if err != nil {
			return nil, nil, err
		}
		if _, optional := optionalFiles[file]; !optional {
			lines[file] = n
		}
		for _, m := range methods {
			if slices.Contains(abilities, m) {
				has[file] = append(has[file], m)
			}
		}
	}
	return lines, has, nil
}

// codeLines returns how many lines of src hold code after the imports, and the
// methods that it declares.
func codeLines(name string, src []byte) (n int, methods []string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return 0, nil, err
	}
	begin := fset.Position(f.Name.End()).Line
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				begin = fset.Position(d.End()).Line
			}
		case *ast.FuncDecl:
			if d.Recv != nil {
				methods = append(methods, d.Name.Name)
			}
		}
	}
	file := fset.AddFile(name+" tokens", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0) // without comments
	code := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // a line's end, which the scanner adds
		}
		first := file.Line(pos)
		for line := first; line <= first+strings.Count(lit, "\n"); line++ {
			if line > begin {
				code[line] = true
			}
		}
	}
	return len(code), methods, nil
}

func isSubset(part, whole []string) bool {
	for _, s := range part {
		if !slices.Contains(whole, s) {
			return false
		}
	}
	return true
}

func TestLinesOfCodeAreCountedWithoutCommentsBlankLinesAndImports(t *testing.T) {
	for i, tt := range []struct {
		src     string
		want    int
		methods string
	}{
		{"package p", 0, "[]"},
		{"// Package p.\npackage p\n\nimport (\n\t\"fmt\"\n)\n\nimport \"os\"\n", 0, "[]"},
		{"package p\n\n// A is 1.\nconst A = 1 // so it is\n\n/* not\ncounted */\nvar B = `a\nb`\n", 3, "[]"},
		{"package p\n\nfunc (t *T) M() {\n\t// nothing\n\n}\n\nfunc F() {}\n", 3, "[M]"},
	} {
		n, methods, err := codeLines("p.go", []byte(tt.src))
		if err != nil || n != tt.want || fmt.Sprint(methods) != tt.methods {
			t.Errorf("source %d: got %d, %v, %v; want %d, %s", i, n, methods, err, tt.want, tt.methods)
		}
	}
}
