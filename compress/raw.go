package compress

import (
	"bytes"
	"fmt"

	"github.com/leasecache/leasecache"
)

// Raw is the codec of caches of strings and byte slices whose values are stored
// as they are, which is what such a cache does that has no codec. It is for
// [Options.Codec], and returns an error for any other type.
var Raw leasecache.Codec = rawCodec{}

type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	}
	return nil, fmt.Errorf("compress: Raw is for strings and byte slices, and not for %T", v)
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	switch v := v.(type) {
	case *string:
		*v = string(data)
		return nil
	case *[]byte:
		*v = bytes.Clone(data)
		return nil
	}
	return fmt.Errorf("compress: Raw is for strings and byte slices, and not for what %T points at", v)
}
