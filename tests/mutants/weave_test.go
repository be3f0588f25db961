//go:build mutants

package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Building takes far longer than running a test, so one build holds the mutants of
// the core: beside each function that a mutant changes stands the changed one,
// under a name of its own, and the function begins by calling that if the
// environment asks for it.

// mutantEnv names the mutant that a build runs with: its place in the catalogue.
const mutantEnv = "LEASECACHE_MUTANT"

// selector is what a package gets that has mutants. %s is its name.
const selector = `package %s

import "os"

var selectedMutant = os.Getenv("` + mutantEnv + `")
`

var errChange = errors.New("the change must be in the body of one function, whose receiver and parameters have names")

// source is a Go file with mutants.
type source struct {
	text  string
	file  *ast.File
	fset  *token.FileSet
	calls map[int][]string // what functions begin with, by the offset behind their brace
	added []string         // functions
}

func parse(path, text string) (source, error) {
	s := source{text: text, fset: token.NewFileSet(), calls: map[int][]string{}}
	var err error
	s.file, err = parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
	return s, err
}

func (s source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

func (s source) of(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }

// add weaves in the mutant with that number, whose text is changed.
func (s *source) add(number int, path, changed string) error {
	m, err := parse(path, changed)
	if err != nil {
		return err
	}
	if len(m.file.Decls) != len(s.file.Decls) {
		return errChange
	}
	var was, is *ast.FuncDecl
	for i, d := range s.file.Decls {
		if s.of(d) == m.of(m.file.Decls[i]) {
			continue
		}
		f, ok := d.(*ast.FuncDecl)
		g, ok2 := m.file.Decls[i].(*ast.FuncDecl)
		if !ok || !ok2 || was != nil {
			return errChange
		}
		was, is = f, g
	}
	if was == nil || s.of(was.Type) != m.of(is.Type) {
		return errChange
	}
	name := fmt.Sprintf("%sMutant%d", was.Name.Name, number)
	call, err := callOf(was, name)
	if err != nil {
		return err
	}
	s.added = append(s.added, m.text[m.offset(is.Pos()):m.offset(is.Name.Pos())]+name+m.text[m.offset(is.Name.End()):m.offset(is.End())])
	at := s.offset(was.Body.Lbrace) + 1
	s.calls[at] = append(s.calls[at], fmt.Sprintf("case %q:\n%s\n", strconv.Itoa(number), call))
	return nil
}

// callOf is the statement that calls the function of that name in place of f.
func callOf(f *ast.FuncDecl, name string) (string, error) {
	var b strings.Builder
	if f.Type.Results.NumFields() > 0 {
		b.WriteString("return ")
	}
	if f.Recv != nil {
		if len(f.Recv.List[0].Names) == 0 {
			return "", errChange
		}
		b.WriteString(f.Recv.List[0].Names[0].Name + ".")
	}
	b.WriteString(name)
	if f.Type.TypeParams != nil {
		b.WriteString("[" + strings.Join(names(f.Type.TypeParams), ", ") + "]")
	}
	args := names(f.Type.Params)
	if len(args) != f.Type.Params.NumFields() {
		return "", errChange
	}
	b.WriteString("(" + strings.Join(args, ", "))
	if list := f.Type.Params.List; len(list) > 0 {
		if _, variadic := list[len(list)-1].Type.(*ast.Ellipsis); variadic {
			b.WriteString("...")
		}
	}
	b.WriteString(")")
	if f.Type.Results.NumFields() == 0 {
		b.WriteString("\nreturn")
	}
	return b.String(), nil
}

// names returns the names of fields, without those that cannot be used.
func names(fields *ast.FieldList) (names []string) {
	for _, f := range fields.List {
		for _, n := range f.Names {
			if n.Name != "_" {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// write returns the text with all mutants.
func (s source) write() string {
	var b bytes.Buffer
	for i := range len(s.text) {
		if calls, ok := s.calls[i]; ok {
			b.WriteString("\nswitch selectedMutant {\n" + strings.Join(calls, "") + "}\n")
		}
		b.WriteByte(s.text[i])
	}
	for _, f := range s.added {
		b.WriteString("\n" + f + "\n")
	}
	return b.String()
}

// weave makes the overlay of a build with all mutants of Go files in it.
func weave(t *testing.T, root, dir string) (overlay string) {
	t.Helper()
	sources, replaced := map[string]source{}, map[string]string{}
	write := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replaced), filepath.Base(path)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[path] = file
	}
	for i, m := range catalogue {
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		path := filepath.Join(root, m.file)
		s, ok := sources[path]
		if !ok {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = parse(path, string(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.add(i, path, m.change(t, s.text)); err != nil {
			t.Fatalf("mutant %q: %v", m.name, err)
		}
		sources[path] = s
	}
	for path, s := range sources {
		write(path, s.write())
		if selected := filepath.Join(filepath.Dir(path), "zz_selected_mutant.go"); replaced[selected] == "" {
			write(selected, fmt.Sprintf(selector, s.file.Name.Name))
		}
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
