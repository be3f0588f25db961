package goredis

import (
	"io"
	"time"

	"github.com/leasecache/leasecache/driver"
)

// Open implements [driver.Driver].
func (registered) Open(dsn string) (driver.Evaler, error) {
	t, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c, err := t.open()
	if err != nil {
		return nil, err
	}
	return opened{getBounder{evaler{client: c}}, c}, nil
}

// opened is over a client that this package made.
type opened struct {
	getBounder
	io.Closer
}

// Bound implements [driver.Bounder].
func (e opened) Bound(d time.Duration) driver.Evaler {
	return opened{getBounder{e.bounded(d)}, e.Closer}
}
