package compress

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/leasecache/leasecache"
)

func mustNew(t testing.TB, o Options) *Codec {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustMarshal(t testing.TB, c leasecache.Codec, v any) []byte {
	t.Helper()
	data, err := c.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func isCompressed(data []byte) bool { return bytes.HasPrefix(data, []byte(magic+kindZstd+guard)) }

// text returns n bytes that can be compressed, and noise n that cannot.
func text(n int) string {
	return strings.Repeat("all work and no play makes jack a dull boy\n", n/43+1)[:n]
}

func noise(n int) string {
	r := rand.NewChaCha8([32]byte{})
	b := make([]byte, n)
	_, _ = r.Read(b) // never fails
	return string(b)
}

func TestWhatIsCompressed(t *testing.T) {
	raw := func(o Options) *Codec { o.Codec = Raw; return mustNew(t, o) }
	for _, test := range []struct {
		name       string
		codec      *Codec
		value      string
		compressed bool
	}{
		{"empty", raw(Options{}), "", false},
		{"a byte below the threshold", raw(Options{}), text(1023), false},
		{"at the threshold", raw(Options{}), text(1024), true},
		{"a byte below another threshold", raw(Options{Threshold: 300}), text(299), false},
		{"at another threshold", raw(Options{Threshold: 300}), text(300), true},
		{"of a few bytes", raw(Options{Threshold: 1}), text(200), true},
		{"cannot be", raw(Options{}), noise(1 << 20), false},
		{"hardly can be", raw(Options{}), noise(1<<20) + text(100<<10), false},
		{"can be by half", raw(Options{}), noise(1<<20) + text(1<<20), true},
		{"1 MiB", raw(Options{}), text(1 << 20), true},
		{"16 MiB", raw(Options{}), text(16 << 20), true},
		{"at MaxSize", raw(Options{MaxSize: 2000}), text(2000), true},
		{"smaller than a window, at MaxSize", raw(Options{Threshold: 1, MaxSize: 500}), text(500), true},
		{"a byte above MaxSize", raw(Options{MaxSize: 2000}), text(2001), false},
		{"read only", raw(Options{ReadOnly: true}), text(1 << 20), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := mustMarshal(t, test.codec, test.value)
			if isCompressed(data) != test.compressed {
				t.Errorf("%d bytes became %d, compressed: %v", len(test.value), len(data), !test.compressed)
			}
			if !test.compressed && string(data) != test.value {
				t.Error("what is not compressed was changed")
			}
			var s string
			var b []byte
			if err := errors.Join(test.codec.Unmarshal(data, &s), test.codec.Unmarshal(data, &b)); err != nil || s != test.value || string(b) != test.value {
				t.Errorf("%d bytes came back as %d and %d, error %v", len(test.value), len(s), len(b), err)
			}
		})
	}
}

type product struct {
	ID   int
	Tags []string
}

func TestJSONIsTheDefault(t *testing.T) {
	c := mustNew(t, Options{})
	small := product{1, []string{"lamp"}}
	if got, want := string(mustMarshal(t, c, small)), `{"ID":1,"Tags":["lamp"]}`; got != want {
		t.Errorf("a small value is %s, want %s", got, want)
	}
	large := product{2, strings.Split(text(100<<10), "\n")}
	data := mustMarshal(t, c, &large)
	if !isCompressed(data) {
		t.Error("a large value is not compressed")
	}
	var got product
	if err := c.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(large, got); diff != "" {
		t.Errorf("it came back changed (-want +got):\n%s", diff)
	}
	// As for a cache that is given JSON as its codec, and whatever holds the string.
	for _, v := range []any{"v", []byte("v")} {
		if data := mustMarshal(t, c, v); data[0] != '"' {
			t.Errorf("%T is encoded as %q, want JSON", v, data)
		}
	}
}

// old are codecs of a service that does not compress yet.
var old = map[string]leasecache.Codec{"JSON": leasecache.JSON, "gob": gobCodec{}}

type gobCodec struct{}

func (gobCodec) Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Unmarshal(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

func TestWhatWasWrittenBeforeIsReadAndWhatIsWrittenNowIsRefusedByWhatWasBefore(t *testing.T) {
	v := product{7, strings.Split(text(10<<10), "\n")}
	for name, codec := range old {
		t.Run(name, func(t *testing.T) {
			now := mustNew(t, Options{Codec: codec})
			var got product
			if err := now.Unmarshal(mustMarshal(t, codec, v), &got); err != nil || cmp.Diff(v, got) != "" {
				t.Errorf("what was written before is read as %+v, %v", got, err)
			}
			got = product{}
			data := mustMarshal(t, now, v)
			if err := codec.Unmarshal(data, &got); !isCompressed(data) || err == nil {
				t.Errorf("the codec of before reads what is compressed as %+v", got)
			}
			// A process that has it, and does not write it yet.
			if err := mustNew(t, Options{Codec: codec, ReadOnly: true}).Unmarshal(data, &got); err != nil || cmp.Diff(v, got) != "" {
				t.Errorf("a process that does not write it yet gets %+v, %v", got, err)
			}
		})
	}
}

func TestValuesThatLookLikeACompressedOneComeBackAsTheyWere(t *testing.T) {
	c := mustNew(t, Options{Codec: Raw})
	compressed := string(mustMarshal(t, c, text(5000)))
	for _, v := range []string{
		magic, magic + kindZstd, magic + kindZstd + guard, magic + kindPlain + guard, magic + "later", compressed,
		string(mustMarshal(t, c, magic+"x")), magic + text(5000), magic + noise(5000),
	} {
		for _, o := range []Options{{Codec: Raw}, {Codec: Raw, ReadOnly: true}} {
			data := mustMarshal(t, mustNew(t, o), v)
			var got string
			if err := c.Unmarshal(data, &got); err != nil || got != v {
				t.Errorf("%.30q came back as %.30q, %v", v, got, err)
			}
		}
	}
}

// The form is part of docs/protocol.md: what is stored outlives the process that
// has written it, and a deploy.
func TestTheForm(t *testing.T) {
	const header = "c1" + "6c65617365" // and in ASCII: lease
	for hexadecimal, want := range map[string]string{
		header + "6e6f6e65" + "07" + "c16c65617365":                            magic,
		header + "7a737464" + "07" + "28b52ffd" + "2003" + "190000" + "616263": "abc", // one raw block, no checksum
	} {
		data, err := hex.DecodeString(hexadecimal)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := mustNew(t, Options{Codec: Raw}).Unmarshal(data, &got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", hexadecimal, got, err, want)
		}
	}
}

// frame returns what a writer with another limit, or an attacker, stores.
func frame(t testing.TB, content []byte, o ...zstd.EOption) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, o...)
	if err != nil {
		t.Fatal(err)
	}
	return e.EncodeAll(content, []byte(magic+kindZstd+guard))
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestABombIsAnErrorAndCostsNoMemory(t *testing.T) {
	const size = 64<<20 + 1
	bomb := frame(t, make([]byte, size))
	unstated := streamed(t, make([]byte, size))
	c := mustNew(t, Options{Codec: Raw})
	two := append(frame(t, []byte(text(5000))), frame(t, make([]byte, 40<<20))[headerSize:]...)
	for name, data := range map[string][]byte{"states its size": bomb, "states no size": unstated, "two frames": two} {
		t.Run(name, func(t *testing.T) {
			t.Logf("%d bytes", len(data))
			for _, v := range []any{new(string), new([]byte)} {
				var err error
				// Two frames cost what the limit lets through before it is seen.
				most := map[bool]uint64{false: 4 << 20, true: 200 << 20}[name == "two frames"]
				if n := allocated(func() { err = c.Unmarshal(data, v) }); err == nil || n > most {
					t.Errorf("%d bytes were allocated, the error is %v", n, err)
				}
			}
		})
	}
	err := c.Unmarshal(bomb, new(string))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a value of %d bytes is larger than Options.MaxSize, which is %d", size, 64<<20)) {
		t.Errorf("the error is %v", err)
	}
	// And one byte less is read.
	var got []byte
	if err := c.Unmarshal(frame(t, make([]byte, size-1)), &got); err != nil || len(got) != size-1 {
		t.Errorf("a value of the largest size is read as %d bytes, %v", len(got), err)
	}
}

// streamed returns a frame that does not state its size.
func streamed(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(magic + kindZstd + guard)
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	half := len(content) / 2 // in two, or the size would be known
	_, err1 := w.Write(content[:half])
	err2 := w.Flush()
	_, err3 := w.Write(content[half:])
	if err := errors.Join(err1, err2, err3, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDamageIsAnError(t *testing.T) {
	c := mustNew(t, Options{Codec: Raw})
	good := mustMarshal(t, c, text(5000))
	for n := range len(good) {
		if n < len(magic) {
			continue // shorter than the magic it is just a value
		}
		var s string
		if err := c.Unmarshal(good[:n], &s); err == nil {
			t.Errorf("cut to %d of %d bytes it is read", n, len(good))
		}
	}
	for i := range good {
		if i < len(magic) {
			continue
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		var s string
		if err := c.Unmarshal(bad, &s); err == nil && s != text(5000) {
			t.Errorf("with byte %d changed it is read as something else", i)
		}
	}
	for name, data := range map[string]string{
		"something follows":       string(good) + "x",
		"a frame follows":         string(good) + string(good[headerSize:]),
		"a skippable frame":       magic + kindZstd + guard + "\x50\x2a\x4d\x18\x01\x00\x00\x00x",
		"no frame":                magic + kindZstd + guard,
		"a kind that comes later": magic + "brot" + guard + "x",
		"another guard":           magic + kindPlain + "\x06x",
	} {
		var s string
		err := c.Unmarshal([]byte(data), &s)
		if err == nil {
			t.Errorf("%s: it is read as %d bytes", name, len(s))
		} else if !strings.HasPrefix(err.Error(), "compress: ") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestACallerMayChangeWhatItGets(t *testing.T) {
	c := mustNew(t, Options{Codec: Raw})
	v := []byte(text(5000))
	data := mustMarshal(t, c, v)
	before := bytes.Clone(data)
	for range 3 {
		var got []byte
		if err := c.Unmarshal(data, &got); err != nil || string(got) != text(5000) {
			t.Fatalf("read %d bytes, error %v", len(got), err)
		}
		for i := range got {
			got[i] = 'X'
		}
		// The next one would be read into the same memory, were it kept.
		if err := c.Unmarshal(data, new(string)); err != nil {
			t.Fatal(err)
		}
		if got[0] != 'X' {
			t.Fatal("another read changed it")
		}
	}
	if !bytes.Equal(data, before) || string(v) != text(5000) {
		t.Error("Unmarshal changed what it read, or Marshal its value")
	}
}

func TestConcurrentUse(t *testing.T) {
	c := mustNew(t, Options{})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 50 {
				v := product{g, strings.Split(text(1000*(i+1)+g), "\n")}
				data, err := c.Marshal(v)
				if err != nil {
					t.Error(err)
					return
				}
				var got product
				if err := c.Unmarshal(data, &got); err != nil || cmp.Diff(v, got) != "" {
					t.Errorf("another value came back, or the error %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestTheErrorsOfTheInnerCodecAreReachable(t *testing.T) {
	c := mustNew(t, Options{})
	if _, err := c.Marshal(func() {}); !is[*json.UnsupportedTypeError](err) {
		t.Errorf("Marshal returns %v", err)
	}
	for _, v := range []string{"small", text(5000)} {
		if err := c.Unmarshal(mustMarshal(t, c, v), new(int)); !is[*json.UnmarshalTypeError](err) {
			t.Errorf("Unmarshal returns %v", err)
		}
	}
	raw := mustNew(t, Options{Codec: Raw})
	if _, err := raw.Marshal(1); err == nil || !strings.Contains(err.Error(), "not for int") {
		t.Errorf("Raw returns %v for an int", err)
	}
	if err := raw.Unmarshal(nil, new(any)); err == nil || !strings.Contains(err.Error(), "*interface") {
		t.Errorf("Raw returns %v for a pointer to an interface", err)
	}
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func TestOptionsOutOfRange(t *testing.T) {
	for want, o := range map[string]Options{
		"Options.Threshold is -1: it must be from 1 to 536870912":      {Threshold: -1},
		"Options.Threshold is 536870913: it must be from 1 to":         {Threshold: 512<<20 + 1},
		"Options.MaxSize is -1: it must be from 1 to 536870912":        {MaxSize: -1},
		"Options.MaxSize is 536870913: it must be from 1 to 536870912": {MaxSize: 512<<20 + 1},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: the error is %v, want one with %q", o, err, want)
		}
	}
	for _, o := range []Options{{Threshold: 1, MaxSize: 1}, {Threshold: 512 << 20, MaxSize: 512 << 20}} {
		mustNew(t, o)
	}
}

func FuzzUnmarshal(f *testing.F) {
	c := mustNew(f, Options{Codec: Raw, MaxSize: 1 << 20})
	for _, seed := range []string{"", "v", magic, magic + kindPlain + guard + "v", string(mustMarshal(f, c, text(5000))), string(mustMarshal(f, c, magic))} {
		f.Add([]byte(seed))
	}
	f.Add(frame(f, make([]byte, 1<<20+1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var s string
		var b []byte
		err, same := c.Unmarshal(data, &s), c.Unmarshal(data, &b)
		switch {
		case !bytes.Equal(data, before):
			t.Error("it changed what it read")
		case (err == nil) != (same == nil) || s != string(b):
			t.Errorf("as a string it is %d bytes, %v; as bytes %d, %v", len(s), err, len(b), same)
		case len(s) > max(1<<20, len(data)):
			t.Errorf("%d bytes became %d", len(data), len(s))
		case !bytes.HasPrefix(data, []byte(magic)) && s != string(data):
			t.Error("a value that is not compressed came back changed")
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for _, seed := range []string{"", "v", magic, magic + kindZstd + guard, text(5000), text(200), noise(100)} {
		f.Add(seed, uint16(100))
	}
	f.Fuzz(func(t *testing.T, v string, threshold uint16) {
		c := mustNew(t, Options{Codec: Raw, Threshold: int(threshold) + 1})
		data := mustMarshal(t, c, v)
		if len(data) > len(v)+headerSize {
			t.Errorf("%d bytes became %d", len(v), len(data))
		}
		var got string
		if err := c.Unmarshal(data, &got); err != nil || got != v {
			t.Errorf("%d bytes came back as %d, error %v", len(v), len(got), err)
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20, 16 << 20} {
		c := mustNew(b, Options{Codec: Raw})
		v := []byte(text(size))
		data := mustMarshal(b, c, v)
		name := fmt.Sprint(size>>10, "KiB")
		b.Run("Marshal/"+name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Marshal(v); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Unmarshal/"+name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				var got []byte
				if err := c.Unmarshal(data, &got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
