package servertest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"
)

// TestMain also makes the test's program a server's program: started with a server's arguments, it is one that knows INFO.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "--port" || os.Args[1] == "--version") {
		fakeServer(os.Args[1:])
	}
	goleak.VerifyTestMain(m)
}

const fakeVersion = "9.0.1"

func fakeServer(args []string) {
	if args[0] == "--version" {
		fmt.Printf("Valkey server v=%s sha=00000000:0 malloc=libc bits=64 build=0\n", fakeVersion)
		os.Exit(0)
	}
	if slices.Contains(args, "--no-such-option") {
		fmt.Println("*** FATAL CONFIG FILE ERROR ***")
		os.Exit(1)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	serveInfo(l, fmt.Sprintf("process_id:%d\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:%s\r\n", os.Getpid(), fakeVersion))
	os.Exit(0)
}

// serveInfo answers every command with info until l is closed.
func serveInfo(l net.Listener, info string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := readReply(bufio.NewReader(conn)); err == nil { // a command has the form of a reply
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(info), info)
		}
		conn.Close()
	}
}

// failure runs f with a test of its own, whose clean-ups it runs too, and returns what it failed with, or "".
func failure(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { f(r) }) // Fatal ends its goroutine
	wg.Wait()
	for _, clean := range slices.Backward(r.cleanups) {
		clean()
	}
	return r.text
}

type recorder struct {
	testing.TB
	text     string
	cleanups []func()
}

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatal(args ...any)                 { r.text = fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func TestAServerRunsAsAProcess(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if vendor, version, err := binaryVersion(t.Context(), self); err != nil || vendor != "valkey" || version != fakeVersion {
		t.Fatalf("binaryVersion = %s, %s, %v", vendor, version, err)
	}
	var dir string
	text := failure(t, func(t testing.TB) {
		s := startFrom(t, Named(t, "valkey-9"), origin{binary: self}, File("a.conf", "x"))
		p := s.inst.(*processInstance)
		dir = p.dir
		if content, err := os.ReadFile(filepath.Join(dir, "a.conf")); err != nil || string(content) != "x" {
			t.Fatalf("the file is %q, %v", content, err)
		}
		first := p.pid()
		s.Pause()
		s.Resume()
		s.Kill()
		if up, _ := p.running(t.Context()); up {
			t.Fatal("it runs after Kill")
		}
		s.Restart()
		if p.pid() == first {
			t.Fatal("it is the same process after Restart")
		}
	})
	if text != "" {
		t.Fatal(text)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory of the server is left: %v", err)
	}
}

func TestAProcessThatOnlySeemsToStartIsNotTaken(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := Named(t, "valkey-9")
	// Another server has the port: the process ends, and what answers there must not pass for it.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { serveInfo(l, "process_id:1\r\nvalkey_version:9.0.1\r\n") })
	defer wg.Wait()
	defer l.Close()

	g := &processes{binary: self}
	defer g.close(t.Context())
	port := l.Addr().(*net.TCPAddr).Port
	inst, err := g.launch(t.Context(), node{args: []string{"--port", fmt.Sprint(port)}})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), spec: spec, inst: inst}
	_, _, err = s.await(within(t, startTimeout))
	if err == nil || !portTaken(err) {
		t.Errorf("await = %v, want the address to be in use", err)
	}
}

func TestAServerThatEndsAtOnceFailsTheTestWithItsLog(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		from origin
	}{
		{"a process", origin{binary: self}},
		{"whatever there is", mustOrigin(t, Named(t, "valkey-9"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := failure(t, func(t testing.TB) {
				startFrom(t, Named(t, "valkey-9"), tt.from, Args("--no-such-option", "x"))
			})
			for _, want := range []string{"servertest: starting valkey-9 from ", "it ended", "FATAL CONFIG FILE ERROR"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in:\n%s", want, text)
				}
			}
		})
	}
}

func TestAnExternalServerIsCheckedAndLeftAlone(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { serveInfo(l, "redis_version:7.0.15\r\n") })
	defer wg.Wait()
	defer l.Close()
	from := origin{addr: l.Addr().String()}
	redis7 := Named(t, "redis-7")

	for _, tt := range []struct {
		name string
		f    func(t testing.TB)
		want string
	}{
		{"it may be what the table says", func(t testing.TB) { startFrom(t, redis7, from) }, ""},
		{
			"it may be another version",
			func(t testing.TB) { startFrom(t, Named(t, "redis-8"), from) },
			"servertest: the server that LEASECACHE_ADDR_REDIS_8 names: " + from.addr +
				" is redis 7.0.15, and redis-8 must be redis 8: correct the image, the binary or the address that it comes from",
		},
		{
			"it takes no options",
			func(t testing.TB) { startFrom(t, redis7, from, Args("--maxmemory", "1mb")) },
			"servertest: this test starts redis-7 with options, but LEASECACHE_ADDR_REDIS_7 names a server that already runs: unset it",
		},
		{
			"it is not killed",
			func(t testing.TB) { startFrom(t, redis7, from).Kill() },
			"servertest: this test stops or restarts redis-7, but LEASECACHE_ADDR_REDIS_7 names a server that already runs: unset it",
		},
		{
			"it is not restarted",
			func(t testing.TB) { startFrom(t, redis7, from).Restart() },
			"servertest: this test stops or restarts redis-7, but LEASECACHE_ADDR_REDIS_7 names a server that already runs: unset it",
		},
		{
			"it is no cluster",
			func(t testing.TB) { startAll(t, redis7, from, 1, 1, nil) },
			"servertest: this test starts redis-7 in a cluster or under a sentinel, but LEASECACHE_ADDR_REDIS_7 names a server that already runs: unset it",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := failure(t, tt.f); got != tt.want {
				t.Errorf("failed with %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAnUnknownServerIsNamedWithThoseThatThereAre(t *testing.T) {
	t.Parallel()
	got := failure(t, func(t testing.TB) { Named(t, "redis-6") })
	want := `servertest: unknown server "redis-6": the table has valkey-9, valkey-8.1, redis-8, redis-7`
	if got != want {
		t.Errorf("failed with %q, want %q", got, want)
	}
}

func TestContainersOfAProcessThatEndedAreRemoved(t *testing.T) {
	t.Parallel()
	from := mustOrigin(t, Named(t, "valkey-9"))
	if from.image == "" {
		t.Log("servers do not run in containers here")
		return
	}
	gone := exec.Command(os.Args[0], "--version")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, owner string
		removed     bool
	}{
		{"of a process that ended", fmt.Sprintf("%s/%d", self, gone.Process.Pid), true},
		{"of this process", fmt.Sprintf("%s/%d", self, os.Getpid()), false},
		{"of another host", fmt.Sprintf("x%s/%d", self, gone.Process.Pid), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := within(t, startTimeout)
			ctr, err := testcontainers.Run(ctx, from.image, testcontainers.WithCmd("sleep", "infinity"),
				testcontainers.WithLogger(log.NewNoopLogger()), testcontainers.WithLabels(map[string]string{ownerLabel: tt.owner}))
			t.Cleanup(func() {
				if err := testcontainers.TerminateContainer(ctr, testcontainers.StopTimeout(0)); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			err = withClient(ctx, func(cli *testcontainers.DockerClient) error {
				removeOrphans(context.WithoutCancel(ctx), cli)
				_, err := cli.ContainerInspect(ctx, ctr.GetContainerID(), client.ContainerInspectOptions{})
				return err
			})
			if removed := err != nil; removed != tt.removed {
				t.Errorf("removed = %t (%v), want %t", removed, err, tt.removed)
			}
		})
	}
}
