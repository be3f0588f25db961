package rueidis

import (
	"fmt"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache/driver"
)

// reply converts a message. An error among the elements of a list is the reply's
// error. Types that only RESP3 has are errors: scripts of leasecache do not
// return them.
func reply(m rueidis.RedisMessage) (driver.Reply, error) {
	switch {
	case m.IsNil():
		return driver.Nil(), nil
	case m.IsInt64():
		n, err := m.ToInt64()
		return driver.Int(n), err
	case m.IsString():
		s, err := m.ToString()
		return driver.Str(s), err
	case m.IsArray():
		list, err := m.ToArray()
		if err != nil {
			return driver.Reply{}, err
		}
		elems := make([]driver.Reply, len(list))
		for i, e := range list {
			if elems[i], err = reply(e); err != nil {
				return driver.Reply{}, err
			}
		}
		return driver.List(elems...), nil
	}
	if err := m.Error(); err != nil {
		return driver.Reply{}, serverError(m, err)
	}
	v, err := m.ToAny()
	if err != nil {
		return driver.Reply{}, err
	}
	return driver.Reply{}, fmt.Errorf("rueidis: the script returned a %T: want nil, an integer, a string or a list of them", v)
}
