//go:build mutants

package mutants

import (
	"slices"
	"testing"

	"github.com/leasecache/leasecache/tests/mutants/page"
)

func TestThePageHasTheMutants(t *testing.T) {
	table := page.Table{{"Mutant", "Of", "Guarantee", "Turns red", "In histories"}}
	for _, m := range catalogue {
		found := ""
		if slices.Contains(inHistories, m.name) {
			found = "found"
		}
		table = append(table, []string{m.name, "`" + m.file + "`", m.guarantee, "`" + m.test + "`", found})
	}
	page.Check(t, "../..", "mutants of the core", table)
}
