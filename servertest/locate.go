package servertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
)

// pullTimeout bounds the pull of one image.
const pullTimeout = 5 * time.Minute

// An origin says where servers of a row come from: exactly one field is set.
type origin struct {
	addr   string // a server that already runs
	image  string // an image that the container engine has
	binary string // a program on this machine
}

// lookups is what finding an origin asks of the world around the test.
type lookups struct {
	getenv   func(name string) string
	engine   func(ctx context.Context) error // nil if a container engine answers
	hasImage func(ctx context.Context, image string) bool
	pull     func(ctx context.Context, image string) error
	lookPath func(name string) (string, error)
	version  func(ctx context.Context, path string) (vendor, version string, err error)
}

// world is the real one.
var world = lookups{
	getenv:   os.Getenv,
	engine:   func(context.Context) error { return engineAnswers() },
	hasImage: hasImage,
	pull:     pullImage,
	lookPath: exec.LookPath,
	version:  binaryVersion,
}

var (
	originsMu sync.Mutex
	origins   = map[string]func() (origin, error){}
)

// originOf finds where servers of the row come from, once per process: a pull that fails takes its time.
func originOf(spec Spec) (origin, error) {
	originsMu.Lock()
	find, ok := origins[spec.Name]
	if !ok {
		find = sync.OnceValues(func() (origin, error) { return world.locate(context.Background(), spec) })
		origins[spec.Name] = find
	}
	originsMu.Unlock()
	return find()
}

// locate follows the order that the package's documentation gives. What the environment names must be usable: a typing
// error in a variable must not end in another server.
func (l lookups) locate(ctx context.Context, spec Spec) (origin, error) {
	if addr := l.getenv(spec.env("ADDR")); addr != "" {
		return origin{addr: addr}, nil
	}

	noEngine := l.engine(ctx)
	if image := l.getenv(spec.env("IMAGE")); image != "" {
		if noEngine != nil {
			return origin{}, fmt.Errorf("servertest: %s names the image %q, but no container engine answers: start Docker, or unset the variable: %w", spec.env("IMAGE"), image, noEngine)
		}
		if !l.hasImage(ctx, image) {
			if err := l.pullWithin(ctx, image); err != nil {
				return origin{}, fmt.Errorf("servertest: %s names the image %q, which the container engine neither has nor can pull: pull or build it, or unset the variable: %w", spec.env("IMAGE"), image, err)
			}
		}
		return origin{image: image}, nil
	}
	if path := l.getenv(spec.env("SERVER")); path != "" {
		if err := l.checkBinary(ctx, spec, path); err != nil {
			return origin{}, fmt.Errorf("servertest: %s names a program that is no %s: correct or unset the variable: %w", spec.env("SERVER"), spec, err)
		}
		return origin{binary: path}, nil
	}

	var tried []string
	if noEngine != nil {
		tried = append(tried, fmt.Sprintf("no container engine answers: %v", noEngine))
	} else {
		for _, image := range []string{spec.LocalImage, spec.Image} {
			if l.hasImage(ctx, image) {
				return origin{image: image}, nil
			}
		}
		err := l.pullWithin(ctx, spec.Image)
		if err == nil {
			return origin{image: spec.Image}, nil
		}
		tried = append(tried, fmt.Sprintf("the container engine has neither %s nor %s, and could not pull the latter: %v", spec.LocalImage, spec.Image, err))
	}
	if path, err := l.lookPath(spec.Binary); err != nil {
		tried = append(tried, fmt.Sprintf("there is no %s on PATH", spec.Binary))
	} else if err := l.checkBinary(ctx, spec, path); err != nil {
		tried = append(tried, err.Error())
	} else {
		return origin{binary: path}, nil
	}
	return origin{}, &missingError{spec: spec, tried: tried}
}

func (l lookups) pullWithin(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	return l.pull(ctx, image)
}

func (l lookups) checkBinary(ctx context.Context, spec Spec, path string) error {
	vendor, version, err := l.version(ctx, path)
	if err != nil {
		return err
	}
	if !spec.matches(vendor, version) {
		return fmt.Errorf("%s is %s %s", path, vendor, version)
	}
	return nil
}

// A missingError says that a server cannot be had, why, and what to do about it.
type missingError struct {
	spec  Spec
	tried []string
}

func (e *missingError) Error() string {
	s := e.spec
	var b strings.Builder
	fmt.Fprintf(&b, "servertest: no server for %s (%s):\n", s.Name, s)
	for _, reason := range e.tried {
		fmt.Fprintf(&b, "  - %s\n", reason)
	}
	fmt.Fprintf(&b, "do one of these:\n")
	fmt.Fprintf(&b, "  - start Docker where it can pull %s, or in leasecache's repository run scripts/images.sh, which builds %s\n", s.Image, s.LocalImage)
	fmt.Fprintf(&b, "  - set %s to an image that the container engine has or can pull\n", s.env("IMAGE"))
	fmt.Fprintf(&b, "  - install %s %s on PATH, or set %s=/path/to/%s\n", s.Binary, s.Version, s.env("SERVER"), s.Binary)
	fmt.Fprintf(&b, "  - set %s=host:port of a %s that runs (not for tests that stop or configure it)", s.env("ADDR"), s)
	return b.String()
}

var versionLine = regexp.MustCompile(`^(\w+) server v=(\S+)`)

// binaryVersion asks a server's program what it is. The path of a redis-server says little: some are links to Valkey.
func binaryVersion(ctx context.Context, path string) (vendor, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", path, err)
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return "", "", fmt.Errorf("%s --version says %q, not the version of a server", path, firstLine(string(out)))
	}
	return strings.ToLower(string(m[1])), string(m[2]), nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
