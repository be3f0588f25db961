package redigo

import (
	"io"
	"time"

	"github.com/leasecache/leasecache/driver"
)

func init() { driver.Register("redigo", registered{}) }

// registered is the driver's entry in the registry.
type registered struct{}

// Open implements [driver.Driver].
func (registered) Open(dsn string) (driver.Evaler, error) {
	p, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return opened{full{evaler{client: p}}, p}, nil
}

// Adopt implements [driver.Adopter].
func (registered) Adopt(client any) (driver.Evaler, bool, error) {
	c, ok := client.(Client)
	if !ok {
		return nil, false, nil
	}
	if err := validate(c); err != nil {
		return nil, true, err
	}
	return New(c), true, nil
}

// opened is over a pool that this package made. Close makes the pool refuse
// further calls.
type opened struct {
	full
	io.Closer
}

// Bound implements [driver.Bounder].
func (e opened) Bound(d time.Duration) driver.Evaler {
	return opened{full{e.bounded(d)}, e.Closer}
}
