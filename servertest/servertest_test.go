package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// eachServer runs f for every row of the table.
func eachServer(t *testing.T, f func(t *testing.T, spec Spec)) {
	for _, spec := range Servers() {
		t.Run(spec.Name, func(t *testing.T) {
			t.Parallel()
			f(t, spec)
		})
	}
}

// mustDo sends a command and fails the test on any error.
func mustDo(t *testing.T, addr string, args ...string) any {
	t.Helper()
	reply, err := do(t.Context(), addr, args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return reply
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAServerIsWhatTheTableSaysAndEmpty(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, spec Spec) {
		s := Start(t, spec)
		if s.Name != spec.Name || s.Vendor != spec.Vendor || !spec.matches(s.Vendor, s.Version) {
			t.Errorf("Start(%s) is %s, %s %s", spec.Name, s.Name, s.Vendor, s.Version)
		}
		t.Logf("%s is %s %s at %s", s.Name, s.Vendor, s.Version, s.Addr)
		if n := mustDo(t, s.Addr, "DBSIZE"); n != int64(0) {
			t.Errorf("DBSIZE = %v, want 0", n)
		}
		want := []any{"save", ""}
		if diff := cmp.Diff(want, mustDo(t, s.Addr, "CONFIG", "GET", "save")); diff != "" {
			t.Errorf("CONFIG GET save (-want +got):\n%s", diff)
		}
	})
}

func TestAKilledServerIsGoneAndRestartsEmptyAtTheSameAddress(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, spec Spec) {
		s := Start(t, spec)
		mustDo(t, s.Addr, "SET", "k", "v")

		s.Kill()
		if reply, err := do(t.Context(), s.Addr, "PING"); err == nil {
			t.Fatalf("PING after Kill = %v, want an error", reply)
		}
		s.Restart()
		if v := mustDo(t, s.Addr, "GET", "k"); v != nil {
			t.Errorf("GET after Restart = %v, want nothing", v)
		}

		mustDo(t, s.Addr, "SET", "k", "v")
		s.Restart() // while it runs
		if v := mustDo(t, s.Addr, "GET", "k"); v != nil {
			t.Errorf("GET after a second Restart = %v, want nothing", v)
		}
	})
}

func TestAPausedServerAnswersOnlyAfterResume(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, spec Spec) {
		s := Start(t, spec)
		s.Pause()
		_, err := do(within(t, 200*time.Millisecond), s.Addr, "PING")
		if nerr, ok := errors.AsType[net.Error](err); !ok || !nerr.Timeout() {
			t.Errorf("PING while paused: %v, want a timeout", err)
		}
		s.Resume()
		if reply := mustDo(t, s.Addr, "PING"); reply != "PONG" {
			t.Errorf("PING after Resume = %v", reply)
		}
		s.Pause()
		s.Kill() // a stopped process can still be killed
		s.Restart()
		mustDo(t, s.Addr, "PING")
	})
}

func TestOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, spec Spec) {
		s := Start(t, spec,
			Args("--maxmemory", "3mb", "--maxmemory-policy", "noeviction", "--appendonly", "yes", "--aclfile", "users.acl"),
			File("users.acl", "user default on nopass ~* &* +@all\nuser reader on >secret ~* +get\n"))
		for name, want := range map[string]string{"maxmemory": "3145728", "maxmemory-policy": "noeviction", "appendonly": "yes"} {
			if diff := cmp.Diff([]any{name, want}, mustDo(t, s.Addr, "CONFIG", "GET", name)); diff != "" {
				t.Errorf("CONFIG GET %s (-want +got):\n%s", name, diff)
			}
		}
		if diff := cmp.Diff([]any{"default", "reader"}, mustDo(t, s.Addr, "ACL", "USERS")); diff != "" {
			t.Errorf("ACL USERS (-want +got):\n%s", diff)
		}
		// Persistence that was asked for survives.
		mustDo(t, s.Addr, "CONFIG", "SET", "appendfsync", "always")
		mustDo(t, s.Addr, "SET", "k", "v")
		s.Restart()
		if v := mustDo(t, s.Addr, "GET", "k"); v != "v" {
			t.Errorf("GET after Restart with appendonly = %v, want v", v)
		}
	})
}

func TestAClusterOfOneNodeHasAllSlotsAndAnnouncesItsAddress(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, spec Spec) {
		s := StartCluster(t, spec, 1, 0).Nodes[0]
		check := func() {
			t.Helper()
			mustDo(t, s.Addr, "SET", "k", "v")
			ranges := mustDo(t, s.Addr, "CLUSTER", "SLOTS").([]any)
			if len(ranges) != 1 {
				t.Fatalf("CLUSTER SLOTS = %v, want one range", ranges)
			}
			r := ranges[0].([]any)
			if r[0] != int64(0) || r[1] != int64(16383) {
				t.Errorf("slots %v to %v, want 0 to 16383", r[0], r[1])
			}
			node := r[2].([]any)
			if got := net.JoinHostPort(fmt.Sprint(node[0]), fmt.Sprint(node[1])); got != s.Addr {
				t.Errorf("announced address = %s, want %s", got, s.Addr)
			}
		}
		check()
		s.Restart()
		check()
	})
}

func TestAClusterOfSeveralNodesFailsOver(t *testing.T) {
	t.Parallel()
	// One row will do: what differs between them is tested on one node.
	c := StartCluster(t, Named(t, "valkey-9"), 3, 1, Args("--cluster-node-timeout", "2000"))
	if n := len(c.Addrs()); n != 6 {
		t.Fatalf("the cluster has %d nodes, want 6", n)
	}
	c.Nodes[0].Kill()
	err := until(within(t, clusterTimeout), "waiting for the failover", func() error {
		info, err := fields(t.Context(), c.Nodes[3].Addr, "INFO", "replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("the replica's role is %s", info["role"])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Restart() // it comes back as a replica, and the cluster is whole again
}

func TestASentinelTellsThePrimaryAndFailsOver(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, spec Spec) {
		s := StartSentinel(t, spec)
		if addr, err := s.primaryAddr(t.Context()); err != nil || addr != s.Primary.Addr {
			t.Fatalf("the sentinel tells %s, %v, want %s", addr, err, s.Primary.Addr)
		}
		mustDo(t, s.Primary.Addr, "SET", "k", "v")
		if n := mustDo(t, s.Primary.Addr, "WAIT", "2", "5000"); n != int64(2) {
			t.Fatalf("WAIT = %v, want 2 replicas", n)
		}

		s.Primary.Kill()
		var addr string
		err := until(within(t, clusterTimeout), "waiting for the failover", func() (err error) {
			addr, err = s.primaryAddr(t.Context())
			if err == nil && addr == s.Primary.Addr {
				err = errors.New("the sentinel still tells the killed primary")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if v := mustDo(t, addr, "GET", "k"); v != "v" {
			t.Errorf("GET at the new primary = %v, want v", v)
		}
	})
}

func TestTheScriptHasTheRowsOfTheTable(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../scripts/images.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(script), "\ntable='\n")
	rows, _, ok := strings.Cut(rest, "'\n")
	if !ok {
		t.Fatal("scripts/images.sh has no table")
	}
	var got [][]string
	for line := range strings.Lines(rows) {
		got = append(got, strings.Fields(line)[:4])
	}
	var want [][]string
	for _, s := range Servers() {
		want = append(want, []string{s.Name, s.Image, s.LocalImage, s.Binary})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows of scripts/images.sh (-table.go +images.sh):\n%s", diff)
	}
}

// primaryAddr asks the sentinel for the primary's address.
func (s *Sentinel) primaryAddr(ctx context.Context) (string, error) {
	reply, err := do(ctx, s.Sentinel.Addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.PrimaryName)
	if err != nil {
		return "", err
	}
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		return "", fmt.Errorf("the sentinel replied %v", reply)
	}
	return net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1])), nil
}
