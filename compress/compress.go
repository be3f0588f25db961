// Package compress is a codec for leasecache that compresses large values with
// zstd.
//
//	codec, err := compress.New(compress.Options{})
//	...
//	products, err := leasecache.New[Product](e, leasecache.Options{
//		Prefix: "catalog:",
//		TTL:    10 * time.Minute,
//		Codec:  codec,
//	})
//
// It wraps another codec, JSON unless told otherwise. What that writes is left
// as it is when it is small or does not get smaller, so that such values can
// still be read with a GET.
//
// # Switching it on
//
// A cache that has it reads what was written without it. The other way round, a
// process that does not have it yet finds a compressed value that its codec
// cannot decode: JSON, gob, protobuf, MessagePack and CBOR all refuse how it
// begins. It then drops the value and loads it afresh, at most once in
// [leasecache.Options.DropBackoff], and in between loads without caching. So a
// rolling deploy costs loads while it lasts, and nothing wrong is read.
//
// Two cases need two deploys: where those loads are too many, and a cache of
// strings or byte slices that has had no codec, because without one everything
// is a value, compressed bytes too. The first deploy sets [Options.ReadOnly],
// and the second, when all processes have it, takes that away. Switching off
// is the same in reverse.
package compress

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/leasecache/leasecache"
)

// Options configure a [Codec]. The zero value works.
type Options struct {
	// Codec turns values into the bytes that are compressed. Default:
	// [leasecache.JSON]. For strings and byte slices as they are, use [Raw].
	Codec leasecache.Codec

	// Threshold is the size in bytes from which an encoded value is compressed.
	// Default: 1 KiB. From 1 to 512 MiB.
	Threshold int

	// MaxSize is the size in bytes up to which a value is decompressed: a larger
	// one is an error, however small it is stored, and is then loaded afresh.
	// Encoded values that are larger are not compressed. Default: 64 MiB, as
	// [leasecache.Options.MaxValueSize]. From 1 to 512 MiB.
	MaxSize int

	// ReadOnly compresses nothing, and reads what others have compressed: see the
	// package documentation. Default: false.
	ReadOnly bool
}

const (
	defaultThreshold = 1 << 10
	defaultMaxSize   = 64 << 20
	most             = 512 << 20

	// Below a saving of one part in this many, a value is left as it is: whoever
	// reads it would decompress it for little.
	leastSaving = 8

	// window is how far back the encoder looks at most. A decoder with a lower
	// limit would refuse its frames, small ones as well.
	window = 8 << 20

	// keptBuffer is the largest buffer that is kept for the next value.
	keptBuffer = 1 << 20
)

// What is written differently from what the inner codec wrote begins with a
// header: magic, four letters that name the kind, and guard.
//
// No codec that looks at its bytes takes it for a value. C1 is no UTF-8, so no
// JSON; MessagePack never uses it; for gob it is a length of 63 bytes of a number
// that has 8; for CBOR it says that a time follows, and a text does. Protobuf
// reads the field 1736 with the eight bytes after "l", and then guard, which is
// of a wire type that does not exist.
const (
	magic     = "\xc1lease"
	kindZstd  = "zstd" // a zstd frame that states its size
	kindPlain = "none" // what the inner codec wrote, which itself begins with magic
	guard     = "\x07"

	headerSize = len(magic) + len(kindZstd) + len(guard)
)

// Codec compresses what another codec writes. It is made by [New]. It is safe for
// concurrent use, and several caches should share one: each has the memory of
// an encoder and a decoder for every processor.
type Codec struct {
	inner     leasecache.Codec
	threshold int
	maxSize   int
	readOnly  bool
	encoder   *zstd.Encoder
	decoder   *zstd.Decoder
	buffers   sync.Pool // of *[]byte
}

var _ leasecache.Codec = (*Codec)(nil)

// New returns a codec. Its error names the option that is out of its range.
func New(o Options) (*Codec, error) {
	if o.Codec == nil {
		o.Codec = leasecache.JSON
	}
	for _, size := range []struct {
		name         string
		value        *int
		defaultValue int
	}{
		{"Threshold", &o.Threshold, defaultThreshold},
		{"MaxSize", &o.MaxSize, defaultMaxSize},
	} {
		if *size.value == 0 {
			*size.value = size.defaultValue
		}
		if *size.value < 1 || *size.value > most {
			return nil, fmt.Errorf("compress: Options.%s is %d: it must be from 1 to %d", size.name, *size.value, most)
		}
	}
	c := &Codec{inner: o.Codec, threshold: o.Threshold, maxSize: o.MaxSize, readOnly: o.ReadOnly}
	c.buffers.New = func() any { return new([]byte) }
	var err error
	// Neither has a goroutine, because neither is used for a stream. A frame that is
	// no single segment states its size only from 256 bytes on.
	if c.encoder, err = zstd.NewWriter(nil, zstd.WithWindowSize(window), zstd.WithSingleSegment(true)); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	limit := uint64(max(o.MaxSize, window)) // MaxSize itself is seen to below
	if c.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(limit)); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return c, nil
}

// Marshal implements [leasecache.Codec]. Its errors are those of the inner codec.
func (c *Codec) Marshal(v any) ([]byte, error) {
	data, err := c.inner.Marshal(v)
	if err != nil {
		return nil, err
	}
	if n := len(data); !c.readOnly && n >= c.threshold && n <= c.maxSize {
		out := c.encoder.EncodeAll(data, append(make([]byte, 0, headerSize+n/2), magic+kindZstd+guard...))
		if len(out) <= n-n/leastSaving {
			return out, nil
		}
	}
	if bytes.HasPrefix(data, []byte(magic)) {
		return append([]byte(magic+kindPlain+guard), data...), nil
	}
	return data, nil
}

var errMalformed = errors.New("compress: the value begins like one of this codec, and is none: it is damaged, of a later version, or was written without it")

// Unmarshal implements [leasecache.Codec]. It returns an error for a value that
// is damaged or larger than MaxSize, and otherwise what the inner codec returns.
func (c *Codec) Unmarshal(data []byte, v any) error {
	if !bytes.HasPrefix(data, []byte(magic)) {
		return c.inner.Unmarshal(data, v)
	}
	if len(data) < headerSize || string(data[headerSize-len(guard):headerSize]) != guard {
		return errMalformed
	}
	kind, payload := string(data[len(magic):headerSize-len(guard)]), data[headerSize:]
	switch kind {
	case kindPlain:
		return c.inner.Unmarshal(payload, v)
	case kindZstd:
		return c.decompress(payload, v)
	}
	return errMalformed
}

func (c *Codec) decompress(frame []byte, v any) error {
	// The size that the frame states is checked before anything is decompressed,
	// and what comes out must be of that size, so that nothing follows it.
	var h zstd.Header
	switch err := h.Decode(frame); {
	case err != nil:
		return fmt.Errorf("compress: %w", err)
	case h.Skippable || !h.HasFCS:
		return errMalformed
	case h.FrameContentSize > uint64(c.maxSize):
		return fmt.Errorf("compress: a value of %d bytes is larger than Options.MaxSize, which is %d", h.FrameContentSize, c.maxSize)
	}
	if p, ok := v.(*[]byte); ok && c.inner == Raw {
		value, err := c.expand(frame, nil, h.FrameContentSize)
		if err == nil {
			*p = value // the caller's own
		}
		return err
	}
	buffer := c.buffers.Get().(*[]byte)
	defer c.buffers.Put(buffer)
	value, err := c.expand(frame, (*buffer)[:0], h.FrameContentSize)
	if err != nil {
		return err
	}
	if cap(value) <= keptBuffer {
		*buffer = value
	}
	return c.inner.Unmarshal(value, v)
}

// expand appends to dst, which is empty, what is in frame.
func (c *Codec) expand(frame, dst []byte, size uint64) ([]byte, error) {
	value, err := c.decoder.DecodeAll(frame, dst)
	if err == nil && uint64(len(value)) != size {
		err = errMalformed
	}
	if err != nil {
		return nil, fmt.Errorf("compress: decompress %d bytes: %w", len(frame), err)
	}
	return value, nil
}
