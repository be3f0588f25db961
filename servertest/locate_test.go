package servertest

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeWorld describes the world around a test.
type fakeWorld struct {
	env      map[string]string
	noEngine bool
	images   []string          // what the engine has
	registry []string          // what it can pull
	programs map[string]string // path to "vendor version"
}

func (w fakeWorld) lookups() lookups {
	return lookups{
		getenv: func(name string) string { return w.env[name] },
		engine: func(context.Context) error {
			if w.noEngine {
				return errors.New("no such socket")
			}
			return nil
		},
		hasImage: func(_ context.Context, image string) bool { return slices.Contains(w.images, image) },
		pull: func(_ context.Context, image string) error {
			if slices.Contains(w.registry, image) {
				return nil
			}
			return errors.New("registry not reached")
		},
		lookPath: func(name string) (string, error) {
			for path := range w.programs {
				if path == "/bin/"+name {
					return path, nil
				}
			}
			return "", exec.ErrNotFound
		},
		version: func(_ context.Context, path string) (string, string, error) {
			what, ok := w.programs[path]
			if !ok {
				return "", "", errors.New("no such file: " + path)
			}
			vendor, version, _ := strings.Cut(what, " ")
			return vendor, version, nil
		},
	}
}

func TestTheFirstOriginThatThereIsIsTaken(t *testing.T) {
	t.Parallel()
	const local, official = "leasecache-test/valkey-8.1", "valkey/valkey:8.1"
	programs := map[string]string{"/bin/valkey-server": "valkey 8.1.1", "/opt/v": "valkey 8.1.4"}
	for _, tt := range []struct {
		name  string
		world fakeWorld
		want  origin
	}{
		{
			name: "an address goes before everything",
			world: fakeWorld{env: map[string]string{
				"LEASECACHE_ADDR_VALKEY_8_1": "h:1", "LEASECACHE_IMAGE_VALKEY_8_1": "i", "LEASECACHE_SERVER_VALKEY_8_1": "/opt/v",
			}, images: []string{"i", local}, programs: programs},
			want: origin{addr: "h:1"},
		},
		{
			name:  "a named image that the engine has",
			world: fakeWorld{env: map[string]string{"LEASECACHE_IMAGE_VALKEY_8_1": "i"}, images: []string{"i", local}},
			want:  origin{image: "i"},
		},
		{
			name:  "a named image that it can pull",
			world: fakeWorld{env: map[string]string{"LEASECACHE_IMAGE_VALKEY_8_1": "i"}, registry: []string{"i"}, images: []string{local}},
			want:  origin{image: "i"},
		},
		{
			name:  "a named program goes before the table's images",
			world: fakeWorld{env: map[string]string{"LEASECACHE_SERVER_VALKEY_8_1": "/opt/v"}, images: []string{local}, programs: programs},
			want:  origin{binary: "/opt/v"},
		},
		{
			name:  "the local image goes before the official one",
			world: fakeWorld{images: []string{official, local}, programs: programs},
			want:  origin{image: local},
		},
		{
			name:  "the official image is there",
			world: fakeWorld{images: []string{official}, programs: programs},
			want:  origin{image: official},
		},
		{
			name:  "the official image is pulled",
			world: fakeWorld{registry: []string{official}, programs: programs},
			want:  origin{image: official},
		},
		{
			name:  "a program on PATH without an engine",
			world: fakeWorld{noEngine: true, programs: programs},
			want:  origin{binary: "/bin/valkey-server"},
		},
		{
			name:  "a program on PATH where the image cannot be pulled",
			world: fakeWorld{programs: programs},
			want:  origin{binary: "/bin/valkey-server"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.world.lookups().locate(t.Context(), Named(t, "valkey-8.1"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(origin{})); diff != "" {
				t.Errorf("origin (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsMissingIsNamedWithWhatToDo(t *testing.T) {
	t.Parallel()
	howTo := `
do one of these:
  - start Docker where it can pull valkey/valkey:9, or in leasecache's repository run scripts/images.sh, which builds leasecache-test/valkey-9
  - set LEASECACHE_IMAGE_VALKEY_9 to an image that the container engine has or can pull
  - install valkey-server 9 on PATH, or set LEASECACHE_SERVER_VALKEY_9=/path/to/valkey-server
  - set LEASECACHE_ADDR_VALKEY_9=host:port of a valkey 9 that runs (not for tests that stop or configure it)`
	for _, tt := range []struct {
		name  string
		world fakeWorld
		want  string
	}{
		{
			name:  "neither engine nor program",
			world: fakeWorld{noEngine: true},
			want: `servertest: no server for valkey-9 (valkey 9):
  - no container engine answers: no such socket
  - there is no valkey-server on PATH` + howTo,
		},
		{
			name: "neither image nor program",
			want: `servertest: no server for valkey-9 (valkey 9):
  - the container engine has neither leasecache-test/valkey-9 nor valkey/valkey:9, and could not pull the latter: registry not reached
  - there is no valkey-server on PATH` + howTo,
		},
		{
			name:  "a program of another version",
			world: fakeWorld{noEngine: true, programs: map[string]string{"/bin/valkey-server": "valkey 8.1.1"}},
			want: `servertest: no server for valkey-9 (valkey 9):
  - no container engine answers: no such socket
  - /bin/valkey-server is valkey 8.1.1` + howTo,
		},
		{
			name:  "a named image without an engine",
			world: fakeWorld{noEngine: true, env: map[string]string{"LEASECACHE_IMAGE_VALKEY_9": "i"}},
			want:  `servertest: LEASECACHE_IMAGE_VALKEY_9 names the image "i", but no container engine answers: start Docker, or unset the variable: no such socket`,
		},
		{
			name:  "a named image that cannot be pulled, though another is there",
			world: fakeWorld{images: []string{"valkey/valkey:9"}, env: map[string]string{"LEASECACHE_IMAGE_VALKEY_9": "i"}},
			want:  `servertest: LEASECACHE_IMAGE_VALKEY_9 names the image "i", which the container engine neither has nor can pull: pull or build it, or unset the variable: registry not reached`,
		},
		{
			name: "a named program that is another server, though an image is there",
			world: fakeWorld{
				images:   []string{"valkey/valkey:9"},
				env:      map[string]string{"LEASECACHE_SERVER_VALKEY_9": "/opt/r"},
				programs: map[string]string{"/opt/r": "redis 9.0.0"},
			},
			want: `servertest: LEASECACHE_SERVER_VALKEY_9 names a program that is no valkey 9: correct or unset the variable: /opt/r is redis 9.0.0`,
		},
		{
			name:  "a named program that is not there",
			world: fakeWorld{env: map[string]string{"LEASECACHE_SERVER_VALKEY_9": "/opt/x"}},
			want:  `servertest: LEASECACHE_SERVER_VALKEY_9 names a program that is no valkey 9: correct or unset the variable: no such file: /opt/x`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			from, err := tt.world.lookups().locate(t.Context(), Named(t, "valkey-9"))
			if err == nil {
				t.Fatalf("found %s, want an error", from)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVersionsAreComparedPartByPart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		row, vendor, version string
		want                 bool
	}{
		{"valkey-9", "valkey", "9.1.2", true},
		{"valkey-9", "valkey", "9", true},
		{"valkey-9", "valkey", "90.1.0", false},
		{"valkey-9", "redis", "9.1.2", false},
		{"valkey-8.1", "valkey", "8.1.1", true},
		{"valkey-8.1", "valkey", "8.10.0", false},
		{"valkey-8.1", "valkey", "8.0.1", false},
		{"redis-8", "redis", "8.0.2", true},
		{"redis-7", "redis", "7.0.15", true},
		{"redis-7", "valkey", "7.2.4", false},
	} {
		if got := Named(t, tt.row).matches(tt.vendor, tt.version); got != tt.want {
			t.Errorf("%s matches %s %s = %t, want %t", tt.row, tt.vendor, tt.version, got, tt.want)
		}
	}
}

func TestInfoTellsValkeyFromRedis(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		info            map[string]string
		vendor, version string
	}{
		{"valkey", map[string]string{"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.1.1"}, "valkey", "8.1.1"},
		{"redis", map[string]string{"redis_version": "7.0.15"}, "redis", "7.0.15"},
		{"something else", map[string]string{"redis_version": "7.2.4", "server_name": "other"}, "other", "7.2.4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if vendor, version := identity(tt.info); vendor != tt.vendor || version != tt.version {
				t.Errorf("identity = %s %s, want %s %s", vendor, version, tt.vendor, tt.version)
			}
		})
	}
}
