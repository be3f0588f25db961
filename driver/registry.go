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
// that they take, for messages that name the import to add.
var known = []struct{ name, client string }{
	{"goredis", "github.com/redis/go-redis/v9"},
	{"miniredis", "github.com/alicebob/miniredis/v2"},
	{"redigo", "github.com/gomodule/redigo"},
	{"rueidis", "github.com/redis/rueidis"},
	{"valkeygo", "github.com/valkey-io/valkey-go"},
}

const adapterPath = "github.com/leasecache/leasecache/adapters/"

// Open opens dsn with the driver that is registered under name.
func Open(name, dsn string) (Evaler, error) {
	registry.RLock()
	d := registry.drivers[name]
	registry.RUnlock()
	if d == nil {
		i := slices.IndexFunc(known, func(k struct{ name, client string }) bool { return k.name == name })
		hint := "import its package"
		if i >= 0 {
			hint = fmt.Sprintf("add: import _ %q", adapterPath+name)
		}
		return nil, fmt.Errorf("leasecache: unknown driver %q (forgotten import?): registered are %s; %s", name, registered(), hint)
	}
	e, err := d.Open(dsn)
	if err != nil {
		return nil, fmt.Errorf("leasecache: open with driver %q: %w", name, err)
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
	hint := "import the adapter for it, or implement driver.Evaler"
	pkg := clientPackage(client)
	for _, k := range known {
		if pkg == k.client || strings.HasPrefix(pkg, k.client+"/") {
			hint = fmt.Sprintf("add: import _ %q", adapterPath+k.name)
			if slices.Contains(Drivers(), k.name) {
				hint = fmt.Sprintf("driver %q takes other types of that package: see its documentation", k.name)
			}
		}
	}
	return nil, fmt.Errorf("leasecache: no driver takes a client of type %T: registered are %s; %s", client, registered(), hint)
}

func clientPackage(client any) string {
	t := reflect.TypeOf(client)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}

func registered() string {
	names := Drivers()
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
