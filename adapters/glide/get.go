package glide

import (
	"context"
	"fmt"
)

// Get implements [driver.Getter]. It is the path of every hit.
func (e evaler) Get(ctx context.Context, key string) (string, bool, error) {
	v, err := e.do(e.call(ctx), []string{key}, []string{"GET", key})
	switch v := v.(type) {
	case string:
		return v, true, nil
	case nil:
		return "", false, err
	}
	return "", false, fmt.Errorf("glide: GET returned a %T: want a string or nil", v)
}
