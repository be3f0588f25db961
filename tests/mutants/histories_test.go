//go:build mutants

package mutants

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
)

// inHistories are mutants that histories of processes show, without faults and
// within historyFor. Others need a moment that is rare, or break what no history
// shows: those a test of their own waits for.
var inHistories = []string{
	"fill: without comparing the lease",
	"fill: any lease will do",
	"invalidate: the lease stays",
	"invalidate: the value stays",
	"join: who came after the load began was there",
	"join: until the fill's reply",
	"join: a load that was rejected",
	"join: a load that is not stored",
	"invalidate: the copy lives as long as the value",
}

// historyFor is how long processes run with a mutant, at a time and at most.
const (
	historyFor = 10 * time.Second
	tries      = 4
)

// TestHistoriesFindMutants runs the processes of package histories with mutants:
// with those of the list, or with the one that LEASECACHE_MUTANT names.
func TestHistoriesFindMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	chosen := inHistories
	if testing.Short() {
		chosen = []string{"fill: without comparing the lease", "invalidate: the lease stays", "join: a load that was rejected"}
	}
	if name := os.Getenv(mutantEnv); name != "" && name != "all" {
		chosen = []string{name}
	}
	t.Setenv(mutantEnv, "")
	dir := t.TempDir()
	binary := filepath.Join(dir, "histories.test")
	build(t, root, "./histories", binary, weave(t, root, dir))

	found := 0
	verdicts := map[string]string{}
	for _, name := range chosen {
		i := slices.IndexFunc(catalogue, func(m mutant) bool { return m.name == name })
		if i < 0 {
			t.Errorf("there is no mutant %q", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			env := append(os.Environ(), catalogue[i].environment(t, root, i)...)
			for range tries {
				out := histories(t, root, binary, env)
				if sum := regexp.MustCompile(`(?m)^histories: (operations=\d+) faults=0 (violations=[1-9]\d*)$`).FindStringSubmatch(out); sum != nil {
					verdicts[name] = sum[1] + " " + sum[2]
					if picture := regexp.MustCompile(`its picture: (\S+)`).FindStringSubmatch(out); picture != nil {
						t.Logf("its picture: %s", picture[1])
					}
					found++
					return
				}
			}
			t.Errorf("no violation in %d runs of %v", tries, historyFor)
		})
	}
	fmt.Printf("%-54s  %-9s  %s\n", "mutant", "guarantee", "in histories")
	for _, m := range catalogue {
		if slices.Contains(chosen, m.name) {
			fmt.Printf("%-54s  %-9s  %s\n", m.name, m.guarantee, cmp.Or(verdicts[m.name], "NOT FOUND"))
		}
	}
	fmt.Printf("histories: %d of %d mutants found\n", found, len(chosen))
}

// histories runs the processes once, and returns what is printed.
func histories(t *testing.T, root, binary string, env []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestHistories$", "-test.v",
		"-topology=standalone", "-calm", "-readers=6", "-operations=1000", fmt.Sprint("-duration=", historyFor))
	cmd.Dir = filepath.Join(root, "tests", "histories")
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("it does not end: %v\n%s", err, out)
	}
	return string(out)
}
