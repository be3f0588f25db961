package conformance

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The example of a report in the documents is that of examples/customclient, which
// lacks every ability, and no part of a rule.
func TestTheDocumentsCountTheCasesRight(t *testing.T) {
	var h Harness
	for field, lacks := range reflect.ValueOf(&h.Lacks).Elem().Fields() {
		if field.Name != "Redial" {
			lacks.SetString("the client has scripts only")
		}
	}
	r := Report{Driver: "customclient", Server: "valkey-9.1.2 standalone", Lacked: map[string]string{}}
	for _, c := range cases() {
		switch {
		case c.lacks != nil && c.lacks(h.Lacks) != "", c.needs != nil && c.needs(h) != "":
			r.Lacked[c.name] = "lacked"
		case c.cache:
			r.Passed += 2
		default:
			r.Passed++
		}
	}
	text, err := os.ReadFile("../docs/adapters.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("`%s`", r); !strings.Contains(string(text), want) {
		t.Errorf("docs/adapters.md does not have %s", want)
	}
}
