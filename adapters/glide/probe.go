package glide

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/leasecache/leasecache/driver"
)

// probe finds out whether the server answers, when the last call left that in
// doubt. glide times out alike when it cannot send, because it has no connection,
// and when it gets no reply. But what glide was not given is not sent. The keys
// tell the node.
func (e evaler) probe(c call, keys []string) error {
	_, err := e.send(c, keys, append([]string{"EVAL", "return 1", strconv.Itoa(len(keys))}, keys...))
	if err == nil || isServerError(err) || errors.Is(err, driver.ErrNotSent) {
		return nil // the command may try, or ends as this did
	}
	return driver.NotSent(fmt.Errorf("glide: the server does not answer: %w", err))
}
