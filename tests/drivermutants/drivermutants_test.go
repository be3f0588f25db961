//go:build mutants

package drivermutants

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasecache/leasecache/conformance"
	"github.com/leasecache/leasecache/driver"
	"github.com/leasecache/leasecache/internal/resp"
	"github.com/leasecache/leasecache/servertest"
)

// Each driver runs in a process of its own, which is this binary again: a case
// that fails would fail the test here.
const (
	mutantEnv  = "LEASECACHE_DRIVER_MUTANT" // its name, or "" for the honest driver
	primaryEnv = "LEASECACHE_DRIVER_MUTANT_PRIMARY"
	replicaEnv = "LEASECACHE_DRIVER_MUTANT_REPLICA"
)

// limit is for how long a driver may run.
const limit = 5 * time.Minute

func TestTheSuiteFailsEveryBrokenDriver(t *testing.T) {
	if name, child := os.LookupEnv(mutantEnv); child {
		conform(t, name)
		return
	}
	rules := readRules(t)
	checkCoverage(t, rules)
	servers := servertest.StartSentinel(t, servertest.Named(t, "valkey-9"))
	stopWatching(t, servers)
	env := append(os.Environ(),
		primaryEnv+"="+servers.Primary.Addr,
		replicaEnv+"="+servers.Replicas[0].Addr,
		"LEASECACHE_PATIENCE=5s", // what is expected to happen happens at once, or never
		"LEASECACHE_REPORT=",
	)

	// What fails a mutant must be its fault.
	out, err := run(t, env, "", "")
	if err != nil {
		t.Fatalf("the driver without a fault does not pass:\n%s", out)
	}
	for _, r := range rules {
		if !strings.Contains(out, "--- PASS: "+t.Name()+"/cases/"+r.name+" (") {
			t.Errorf("%s did not run with the driver without a fault:\n%s", r.name, out)
		}
	}

	verdicts := make([]string, len(catalogue))
	t.Run("mutants", func(t *testing.T) {
		for i, m := range catalogue {
			t.Run(m.name, func(t *testing.T) {
				r := rules[slices.IndexFunc(rules, func(r rule) bool { return r.name == m.rule })]
				if !r.alone {
					t.Parallel()
				}
				out, err := run(t, env, m.name, r.name)
				switch failed := failedCases(out); {
				case err == nil:
					others, _ := run(t, env, m.name, "")
					verdicts[i] = fmt.Sprintf("SURVIVED it, failed by %q", failedCases(others))
					t.Errorf("it survived %s, and was failed by %q:\n%s", r.name, failedCases(others), out)
				case !slices.Equal(failed, []string{r.name}) || !strings.Contains(out, "rule: "+r.sentence):
					verdicts[i] = "NOT BY A RULE"
					t.Errorf("it failed, but not by the rule of %s:\n%s", r.name, out)
				default:
					verdicts[i] = r.name
				}
			})
		}
	})

	failed := 0
	fmt.Printf("%-50s  %-32s  %s\n", "mutant", "rule", "failed by")
	for i, m := range catalogue {
		if verdicts[i] == m.rule {
			failed++
		}
		fmt.Printf("%-50s  %-32s  %s\n", m.name, m.rule, verdicts[i])
	}
	fmt.Printf("drivers: the suite failed %d of %d by the case of their rule\n", failed, len(catalogue))
}

// conform runs the suite with one driver.
func conform(t *testing.T, name string) {
	conformance.Run(t, conformance.Harness{
		Driver:      "mutant",
		Server:      "valkey-9 with a replica",
		Dial:        dialer(os.Getenv(primaryEnv)),
		DialReplica: dialer(os.Getenv(replicaEnv)),
		ClientError: func(err error) bool {
			_, ok := errors.AsType[resp.Error](err)
			return ok
		},
		Open: func(t testing.TB, addr string) driver.Evaler {
			c := newClient(addr)
			c.replica = os.Getenv(replicaEnv)
			if name != "" {
				i := slices.IndexFunc(catalogue, func(m mutant) bool { return m.name == name })
				if i < 0 {
					t.Fatalf("no mutant is named %q", name)
				}
				catalogue[i].fault(c)
			}
			t.Cleanup(func() { c.pool.close() })
			if c.closes {
				return closer{c}
			}
			return c
		},
	})
}

func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) }
}

// stopWatching takes the sentinel away: a loaded machine must not fail over.
func stopWatching(t *testing.T, s *servertest.Sentinel) {
	t.Helper()
	nc, err := dialer(s.Sentinel.Addr)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := resp.NewConn(nc).Do("SENTINEL", "REMOVE", s.PrimaryName); err != nil {
		t.Fatal(err)
	}
}

// run runs the suite with a driver in a process of its own: all of it, or the
// case of one rule. The error says that it failed.
func run(t *testing.T, env []string, mutant, rule string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^TestTheSuiteFailsEveryBrokenDriver$"
	if rule != "" {
		pattern += "/^cases$/^" + rule + "$"
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run", pattern, "-test.v", "-test.count=1", "-test.timeout="+limit.String())
	cmd.Env = append(slices.Clip(env), mutantEnv+"="+mutant)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), err
}

var failLine = regexp.MustCompile(`(?m)^ *--- FAIL: \w+/cases/(\w+)`)

// failedCases returns the cases that failed, each once.
func failedCases(out string) []string {
	var names []string
	for _, m := range failLine.FindAllStringSubmatch(out, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// rule is a case of the suite that is about the driver alone.
type rule struct {
	name, sentence string
	alone          bool // not beside others: it changes or counts what all share
}

var ruleSource = regexp.MustCompile(`(?m)^\t\tname: +"(\w+)",(.*\n)\t\trule: +"(.*)",$`)

// notDrivers are cases of wake-ups that are about the core: tests/mutants breaks
// that.
var notDrivers = []string{"WaitersAreWoken", "WaitersLookOnceTheyAreSubscribed"}

// readRules finds the cases of Eval and of the abilities in the suite's source.
func readRules(t *testing.T) []rule {
	t.Helper()
	var rules []rule
	for _, name := range []string{"eval.go", "ability.go", "wake.go", "batch.go", "track.go"} {
		source, err := os.ReadFile(filepath.Join("../../conformance", name))
		if err != nil {
			t.Fatal(err)
		}
		found := ruleSource.FindAllStringSubmatch(string(source), -1)
		if n := strings.Count(string(source), "\n\t\tname: "); n == 0 || n != len(found) {
			t.Fatalf("conformance/%s has %d cases, of which %d were understood", name, n, len(found))
		}
		for _, m := range found {
			if slices.Contains(notDrivers, m[1]) {
				continue
			}
			rules = append(rules, rule{m[1], m[3], strings.Contains(m[2], "alone: true")})
		}
	}
	return rules
}

// checkCoverage fails if a rule has no mutant, or a mutant no rule.
func checkCoverage(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		if !slices.ContainsFunc(catalogue, func(m mutant) bool { return m.rule == r.name }) {
			t.Errorf("no mutant breaks the rule %s", r.name)
		}
	}
	names := map[string]bool{}
	for _, m := range catalogue {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.name == m.rule }) {
			t.Errorf("mutant %q: no case is named %q", m.name, m.rule)
		}
		if names[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		names[m.name] = true
	}
	if t.Failed() {
		t.FailNow()
	}
}
