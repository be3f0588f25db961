package glide

import (
	"os"
	"os/exec"
	"sync"
	"testing"
)

// It takes a process in which no command has been sent, and the race detector.
func TestTheFirstCallsOfAProcessDoNotRace(t *testing.T) {
	const env = "LEASECACHE_TEST_FIRST_CALLS"
	if os.Getenv(env) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	e := New(serve(t, answer("$1\r\nv\r\n")).client(t))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			<-start
			if _, _, err := get(t.Context(), t, e); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
}
