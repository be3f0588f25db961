package redigo

import (
	"io"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Open implements [driver.Driver].
func (registered) Open(dsn string) (driver.Evaler, error) {
	p, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return opened{full{evaler{client: p}}, p}, nil
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
