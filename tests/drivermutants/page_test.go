//go:build mutants

package drivermutants

import (
	"testing"

	"github.com/leasecache/leasecache/tests/mutants/page"
)

func TestThePageHasTheMutants(t *testing.T) {
	table := page.Table{{"Mutant", "Rule, and the case that fails it"}}
	for _, m := range catalogue {
		table = append(table, []string{m.name, "`" + m.rule + "`"})
	}
	page.Check(t, "../..", "mutants of drivers", table)
}
