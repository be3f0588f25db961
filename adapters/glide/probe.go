package glide

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/leasecache/leasecache/driver"
)

// probe finds out whether the server answers, when the last call left that in
// doubt. glide times out alike when it cannot send, because it has no connection,
// and when it gets no reply. But a script that glide was not given is not sent.
func (e evaler) probe(c call, keys []string) error {
	if !e.doubtful.Load() {
		return nil
	}
	keys = keys[:min(1, len(keys))] // the node that the script would go to
	_, err := e.do(c, keys, append([]string{"EVAL", "return 1", strconv.Itoa(len(keys))}, keys...))
	if _, replied := errors.AsType[*driver.ServerError](err); err == nil || replied || errors.Is(err, driver.ErrNotSent) {
		return nil // the script may try, or ends as this did
	}
	return driver.NotSent(fmt.Errorf("glide: the server does not answer: %w", err))
}

// note takes note of whether the server has replied.
func (e evaler) note(replied bool) {
	if e.doubtful.Load() == replied {
		e.doubtful.Store(!replied)
	}
}
