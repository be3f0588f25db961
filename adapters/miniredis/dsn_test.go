package miniredis

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestADSNIsEmptyOrAName(t *testing.T) {
	for dsn, want := range map[string]string{
		"miniredis:":              "",
		"miniredis://":            "",
		"miniredis://demo":        "demo",
		"miniredis://a.B-c_9":     "a.B-c_9",
		"miniredis://" + long:     long,
		"miniredis://miniredis":   "miniredis",
		"miniredis://127.0.0.1":   "127.0.0.1",
		"miniredis://sessions-eu": "sessions-eu",
	} {
		if name, err := parseDSN(dsn); err != nil || name != want {
			t.Errorf("parseDSN(%q) = %q, %v; want %q", dsn, name, err, want)
		}
	}
}

var long = strings.Repeat("n", 1000)

func TestAnotherDSNIsAnErrorThatSaysWhatToWriteAndPrintsNoPassword(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                    `does not begin with "miniredis:"`,
		"demo":                                `does not begin with "miniredis:"`,
		"miniredis":                           `does not begin with "miniredis:"`,
		"MINIREDIS:":                          `does not begin with "miniredis:"`,
		" miniredis:":                         `does not begin with "miniredis:"`,
		"redis://:hunter2@localhost:6379/0":   `does not begin with "miniredis:"`,
		"miniredis:demo":                      `has no "//" before the name`,
		"miniredis:/demo":                     `has no "//" before the name`,
		"miniredis:hunter2":                   `has no "//" before the name`,
		"miniredis:///demo":                   `holds '/'`,
		"miniredis://demo/1":                  `holds '/'`,
		"miniredis://demo?x=hunter2":          `holds '?'`,
		"miniredis://localhost:6379":          `holds ':'`,
		"miniredis://user:hunter2@host":       `holds ':'`,
		"miniredis://de mo":                   `holds ' '`,
		"miniredis://demo\x00":                `holds '\x00'`,
		"miniredis://d\u00e9mo":               `holds 'é'`,
		"miniredis://\xff":                    `holds '�'`,
		"miniredis://demo#hunter2":            `holds '#'`,
		"miniredis://hunter2%20":              `holds '%'`,
		"rediss://hunter2@miniredis://demo":   `does not begin with "miniredis:"`,
		"miniredis://demo\nminiredis://other": `holds '\n'`,
	} {
		name, err := parseDSN(dsn)
		if err == nil {
			t.Errorf("parseDSN(%q) = %q, want an error", dsn, name)
			continue
		}
		if name != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("parseDSN(%q) = %q, %v; want an error that has %s", dsn, name, err, want)
		}
		for _, must := range []string{`"miniredis:" for`, `"miniredis://name" for`} {
			if !strings.Contains(err.Error(), must) {
				t.Errorf("parseDSN(%q): %v; does not say to write %s", dsn, err, must)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("parseDSN(%q): the error prints a password: %v", dsn, err)
		}
	}
}

func FuzzParseDSN(f *testing.F) {
	for _, seed := range []string{"", "miniredis:", "miniredis://", "miniredis://demo", "miniredis://u:p@h:1/0?q", "miniredis:/x", "redis://h", "miniredis://\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		name, err := parseDSN(dsn)
		if err != nil {
			if name != "" {
				t.Errorf("name %q beside the error %v", name, err)
			}
			// One character of the DSN at most.
			if n := utf8.RuneCountInString(err.Error()); n > 320 {
				t.Errorf("the error is %d characters long: %v", n, err)
			}
			return
		}
		if dsn != "miniredis://"+name && dsn != "miniredis:" {
			t.Errorf("parseDSN(%q) = %q: something was ignored", dsn, name)
		}
		for _, r := range name {
			if !inName(r) {
				t.Errorf("parseDSN(%q) = %q, which holds %q", dsn, name, r)
			}
		}
	})
}
