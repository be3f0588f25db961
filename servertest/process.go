package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// processes is a group of servers that run as children of the test process, each in a temporary directory of its own.
type processes struct {
	binary string
	all    []*processInstance
}

func (g *processes) addr() string { return "127.0.0.1" }

func (g *processes) bind() string { return "127.0.0.1" }

func (g *processes) launch(ctx context.Context, n node) (instance, error) {
	dir, err := os.MkdirTemp("", "leasecache-servertest-")
	if err != nil {
		return nil, err
	}
	p := &processInstance{dir: dir, path: g.binary, args: n.args}
	g.all = append(g.all, p)
	for name, content := range n.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	return p, p.start(ctx)
}

func (g *processes) close(ctx context.Context) error {
	var errs []error
	for _, p := range g.all {
		if up, _ := p.running(ctx); up {
			errs = append(errs, p.signal(ctx, sigKill))
		}
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

type processInstance struct {
	dir, path string
	args      []string
	cmd       *exec.Cmd
	exited    chan struct{} // closed when cmd has been waited for
}

func (p *processInstance) logPath() string { return filepath.Join(p.dir, "server.log") }

func (p *processInstance) start(context.Context) error {
	// A file and no pipe: the server writes it itself, and no goroutine has to copy.
	out, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}()
	return nil
}

func (p *processInstance) signal(ctx context.Context, sig signal) error {
	switch sig {
	case sigStop, sigCont:
		return sendSignal(p.cmd.Process, sig)
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d does not end: %w", p.pid(), context.Cause(ctx))
	}
}

func (p *processInstance) running(context.Context) (bool, error) {
	if p.cmd == nil {
		return false, nil
	}
	select {
	case <-p.exited:
		return false, nil
	default:
		return true, nil
	}
}

func (p *processInstance) pid() int { return p.cmd.Process.Pid }

func (p *processInstance) logs(context.Context) string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(text)
}
