package leasecache

import (
	"encoding/json"
	"fmt"
	"reflect"
	"unsafe"
)

// Codec turns values into bytes and back. It must be safe for concurrent use.
//
// JSON is the default, so that any client can read a value with a GET. A cache
// of strings or of byte slices stores them as they are unless a codec is given.
type Codec interface {
	// Marshal returns v as bytes. They are copied before Marshal is called again
	// with another value.
	Marshal(v any) ([]byte, error)
	// Unmarshal sets what v points at from data. It must not change data, nor
	// keep it after it has returned.
	Unmarshal(data []byte, v any) error
}

// JSON is the default codec: package encoding/json.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// coder is a codec bound to the type of a cache's values. Payloads are strings
// because that is what drivers take and return.
type coder[V any] struct {
	encode func(v V) (string, error)
	decode func(payload string) (V, error)
	// take is decode of a payload that nobody else has, and whose bytes may be
	// changed. It is nil where that makes no difference.
	take func(payload string) (V, error)
}

var stringCoder = coder[string]{
	encode: func(v string) (string, error) { return v, nil },
	decode: func(payload string) (string, error) { return payload, nil },
}

// bytesCoder copies: the caller may change its bytes while a client still has
// them queued, and each reader may change the ones that it got.
var bytesCoder = coder[[]byte]{
	encode: func(v []byte) (string, error) { return string(v), nil },
	decode: func(payload string) ([]byte, error) { return []byte(payload), nil },
	take:   takeBytes,
}

func takeBytes(payload string) ([]byte, error) {
	if payload == "" {
		return []byte{}, nil // as decode: not nil
	}
	return unsafe.Slice(unsafe.StringData(payload), len(payload)), nil
}

func newCoder[V any](codec Codec) coder[V] {
	if codec == nil {
		if c, ok := any(stringCoder).(coder[V]); ok {
			return c
		}
		if c, ok := any(bytesCoder).(coder[V]); ok {
			return c
		}
		codec = JSON
	}
	_, fresh := codec.(jsonCodec) // each slice is a new one, and nobody keeps it
	return coder[V]{
		encode: func(v V) (payload string, err error) {
			defer recovered("codec", &err)
			data, err := codec.Marshal(v)
			if err != nil {
				return "", err
			}
			if fresh {
				return unsafe.String(unsafe.SliceData(data), len(data)), nil
			}
			return string(data), nil
		},
		decode: func(payload string) (v V, err error) {
			defer recovered("codec", &err)
			// A codec may read the string's bytes in place: it promises to
			// neither change nor keep them.
			if err := codec.Unmarshal(unsafe.Slice(unsafe.StringData(payload), len(payload)), &v); err != nil {
				return v, fmt.Errorf("leasecache: decode %d bytes as %v: %w", len(payload), reflect.TypeFor[V](), err)
			}
			return v, nil
		},
	}
}
