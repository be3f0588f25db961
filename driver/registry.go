package driver

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Driver makes Evalers. An adapter registers one under its name.
//
// A Driver must be safe for concurrent use.
type Driver interface {
	// Open returns an Evaler over a new client for dsn, whose form is the
	// driver's own. It should implement [Closer]. Open may return before a
	// connection is made. Its error must say what is wrong with dsn, and must
	// not print a password that dsn holds.
	Open(dsn string) (Evaler, error)
}

// Adopter is an optional ability of a [Driver]: it takes the client that a
// service already has.
type Adopter interface {
	// Adopt returns an Evaler over client. ok is false when client is not of a
	// type that this driver takes; err then is nil. An Evaler that has a
	// [Validator] may report an unusable client by that instead of by err.
	Adopt(client any) (e Evaler, ok bool, err error)
}

var registry struct {
	sync.RWMutex
	drivers map[string]Driver
}

// Register makes a driver available under name, the name of its package. It
// panics if d is nil or if name is empty or taken, because that is a mistake in
// the program. Adapters call it in an init function.
func Register(name string, d Driver) {
	registry.Lock()
	defer registry.Unlock()
	if d == nil {
		panic("leasecache/driver: Register: driver is nil")
	}
	if name == "" {
		panic("leasecache/driver: Register: name is empty")
	}
	if _, dup := registry.drivers[name]; dup {
		panic(fmt.Sprintf("leasecache/driver: Register: called twice for driver %q", name))
	}
	if registry.drivers == nil {
		registry.drivers = map[string]Driver{}
	}
	registry.drivers[name] = d
}

// Drivers returns the sorted names of the registered drivers.
func Drivers() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.drivers))
}

// known lists the project's own adapters by the package path of the clients
// that they take, and those clients, for messages that name the import to add.
var known = []adapter{
	{"glide", "github.com/valkey-io/valkey-glide/go/v2", "a *glide.Client or *glide.ClusterClient"},
	{"goredis", "github.com/redis/go-redis/v9", "a *redis.Client, *redis.ClusterClient or *redis.Ring"},
	{"miniredis", "github.com/alicebob/miniredis/v2", "a *miniredis.Miniredis"},
	{"redigo", "github.com/gomodule/redigo", "a *redis.Pool"},
	{"rueidis", "github.com/redis/rueidis", "a rueidis.Client"},
	{"valkeygo", "github.com/valkey-io/valkey-go", "a valkey.Client"},
}

type adapter struct{ name, client, takes string }

// former lists where clients were published before, with what they are now.
var former = map[string]string{
	"github.com/go-redis/redis":  "github.com/redis/go-redis/v9",
	"github.com/garyburd/redigo": "github.com/gomodule/redigo",
	"github.com/rueian/rueidis":  "github.com/redis/rueidis",
}

const adapterPath = "github.com/leasecache/leasecache/adapters/"

// Open opens dsn with the driver that is registered under name.
func Open(name, dsn string) (Evaler, error) {
	registry.RLock()
	d := registry.drivers[name]
	registry.RUnlock()
	if d == nil {
		i := slices.IndexFunc(known, func(k adapter) bool { return k.name == name })
		hint := "import its package"
		if i >= 0 {
			hint = fmt.Sprintf("add: import _ %q", adapterPath+name)
		}
		return nil, fmt.Errorf("leasecache: unknown driver %q (forgotten import?): registered are %s; %s", name, registered(), hint)
	}
	e, err := d.Open(dsn)
	if err != nil {
		return nil, fmt.Errorf("leasecache: open with driver %q: %w", name, quieted(err))
	}
	return e, nil
}

// Adopt returns an Evaler over client, made by the first registered driver that
// takes clients of its type.
func Adopt(client any) (Evaler, error) {
	if client == nil {
		return nil, errors.New("leasecache: client is nil: hand over the client that the service uses")
	}
	for _, name := range Drivers() {
		registry.RLock()
		a, ok := registry.drivers[name].(Adopter)
		registry.RUnlock()
		if !ok {
			continue
		}
		e, ok, err := a.Adopt(client)
		if v, is := e.(Validator); is && err == nil {
			err = v.Validate()
		}
		if err != nil {
			return nil, fmt.Errorf("leasecache: adopt %T with driver %q: %w", client, name, err)
		}
		if ok {
			return e, nil
		}
	}
	return nil, fmt.Errorf("leasecache: no driver takes a client of type %T: registered are %s; %s", client, registered(), adoptHint(client))
}

// adoptHint says what to do about a client that no driver takes.
func adoptHint(client any) string {
	if _, ok := client.(Evaler); ok {
		return "it is a driver.Evaler already: hand it to leasecache.New or leasecache.NewStore"
	}
	for _, pkg := range packages(client) {
		for _, k := range known {
			if within(pkg, k.client) {
				if slices.Contains(Drivers(), k.name) {
					return fmt.Sprintf("driver %q takes other types of that package: hand over %s", k.name, k.takes)
				}
				return fmt.Sprintf("add: import _ %q, and hand over %s", adapterPath+k.name, k.takes)
			}
		}
		for path, now := range former {
			if within(pkg, path) {
				return fmt.Sprintf("%s is published as %s now, which has an adapter: change to that", path, now)
			}
		}
	}
	adapters := make([]string, len(known))
	for i, k := range known {
		adapters[i] = fmt.Sprintf("%q for %s", adapterPath+k.name, k.client)
	}
	return "import the adapter for it, or implement driver.Evaler: there are " + strings.Join(adapters, ", ")
}

// packages returns the path of the package of client's type, and of those that it
// embeds: a wrapper has the methods of the client within.
func packages(client any) []string {
	t := pointee(reflect.TypeOf(client))
	paths := []string{t.PkgPath()}
	if t.Kind() == reflect.Struct {
		for f := range t.Fields() {
			if f.Anonymous {
				paths = append(paths, pointee(f.Type).PkgPath())
			}
		}
	}
	return paths
}

func pointee(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// within reports whether the package pkg is that at path, or below it.
func within(pkg, path string) bool { return pkg == path || strings.HasPrefix(pkg, path+"/") }

func registered() string {
	names := Drivers()
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
