package glide

import (
	"fmt"

	"github.com/leasecache/leasecache/driver"
)

// reply converts what glide read. An error among the elements of a list is the
// reply's error.
func reply(v any) (driver.Reply, error) {
	switch v := v.(type) {
	case nil:
		return driver.Nil(), nil
	case int64:
		return driver.Int(v), nil
	case string:
		return driver.Str(v), nil
	case []any:
		elems := make([]driver.Reply, len(v))
		for i, e := range v {
			r, err := reply(e)
			if err != nil {
				return driver.Reply{}, err
			}
			elems[i] = r
		}
		return driver.List(elems...), nil
	case error:
		return driver.Reply{}, sorted(v)
	}
	return driver.Reply{}, fmt.Errorf("glide: the script returned a %T: want nil, an integer, a string or a list of them", v)
}
