package leasecache

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// valid are options in which only the test's field may be wrong.
func valid(change func(o *Options)) Options {
	o := Options{TTL: time.Minute}
	change(&o)
	return o
}

func TestOnlyTTLHasToBeSet(t *testing.T) {
	o, err := Options{TTL: 10 * time.Minute}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		field     string
		got, want any
	}{
		{"Prefix", o.Prefix, ""},
		{"TTL", o.TTL, 10 * time.Minute},
		{"NotFoundTTL", o.NotFoundTTL, time.Minute},
		{"Jitter", o.Jitter, 0.0},
		{"Stale", o.Stale, time.Duration(0)},
		{"Lease", o.Lease, 5 * time.Second},
		{"LoadTimeout", o.LoadTimeout, 5 * time.Second},
		{"WaitBound", o.WaitBound, 6 * time.Second},
		{"PollInterval", o.PollInterval, 50 * time.Millisecond},
		{"MaxLoads", o.MaxLoads, 0},
		{"MaxUnleasedLoads", o.MaxUnleasedLoads, 16},
		{"MaxValueSize", o.MaxValueSize, 64 << 20},
		{"OnUnavailable", o.OnUnavailable, UnavailableFail},
		{"OnLeaseLost", o.OnLeaseLost, LostReturn},
		{"DropBackoff", o.DropBackoff, time.Second},
		{"FailureBackoff", o.FailureBackoff, 100 * time.Millisecond},
		{"Codec", o.Codec, nil},
	} {
		if test.got != test.want {
			t.Errorf("the default of %s is %v, want %v", test.field, test.got, test.want)
		}
	}
}

func TestDefaultsFollowFromWhatIsSet(t *testing.T) {
	o, err := Options{TTL: 20 * time.Second, Lease: 2 * time.Second}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.NotFoundTTL != 20*time.Second {
		t.Errorf("NotFoundTTL is %v, want no more than TTL", o.NotFoundTTL)
	}
	if o.LoadTimeout != 2*time.Second || o.WaitBound != 3*time.Second {
		t.Errorf("LoadTimeout is %v, WaitBound %v; want Lease, and a second more", o.LoadTimeout, o.WaitBound)
	}
	set := Options{
		Prefix: "p:", TTL: time.Hour, NotFoundTTL: 2 * time.Hour, Jitter: 0.1, Stale: time.Second,
		Lease: time.Second, LoadTimeout: 2 * time.Second, WaitBound: 3 * time.Second, PollInterval: 4 * time.Second,
		MaxLoads: 5, MaxUnleasedLoads: 6, MaxValueSize: 7, OnUnavailable: UnavailableLoad, OnLeaseLost: LostFail,
		DropBackoff: 8 * time.Second, FailureBackoff: 9 * time.Second, Codec: JSON,
	}
	got, err := set.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	set.OnLoad, got.OnLoad = nil, nil
	if !equal(got, set) {
		t.Errorf("what is set is changed:\n%+v\n%+v", set, got)
	}
}

// equal compares options without OnLoad, which cannot be compared.
func equal(a, b Options) bool {
	return a.Prefix == b.Prefix && a.TTL == b.TTL && a.NotFoundTTL == b.NotFoundTTL && a.Jitter == b.Jitter &&
		a.Stale == b.Stale && a.Lease == b.Lease && a.LoadTimeout == b.LoadTimeout && a.WaitBound == b.WaitBound &&
		a.PollInterval == b.PollInterval && a.MaxLoads == b.MaxLoads && a.MaxUnleasedLoads == b.MaxUnleasedLoads &&
		a.MaxValueSize == b.MaxValueSize && a.OnUnavailable == b.OnUnavailable && a.OnLeaseLost == b.OnLeaseLost &&
		a.DropBackoff == b.DropBackoff && a.FailureBackoff == b.FailureBackoff && a.Codec == b.Codec
}

func TestAnOptionOutOfBoundsIsAnErrorThatNamesFieldValueAndBound(t *testing.T) {
	type durationField struct {
		name string
		set  func(o *Options, d time.Duration)
		is   error
	}
	for _, f := range []durationField{
		{"Options.TTL", func(o *Options, d time.Duration) { o.TTL = d }, ErrTTL},
		{"Options.NotFoundTTL", func(o *Options, d time.Duration) { o.NotFoundTTL = d }, ErrTTL},
		{"Options.Stale", func(o *Options, d time.Duration) { o.Stale = d }, nil},
		{"Options.Lease", func(o *Options, d time.Duration) { o.Lease = d }, nil},
		{"Options.LoadTimeout", func(o *Options, d time.Duration) { o.LoadTimeout = d }, nil},
		{"Options.WaitBound", func(o *Options, d time.Duration) { o.WaitBound = d }, nil},
		{"Options.PollInterval", func(o *Options, d time.Duration) { o.PollInterval = d }, nil},
		{"Options.DropBackoff", func(o *Options, d time.Duration) { o.DropBackoff = d }, nil},
	} {
		t.Run(f.name, func(t *testing.T) {
			for _, bad := range []time.Duration{1, 999 * time.Microsecond, time.Millisecond - 1, -1, -time.Millisecond, -time.Hour, math.MinInt64} {
				err := optionsError(t, valid(func(o *Options) { f.set(o, bad) }), f.name, bad.String(), "at least 1ms")
				if f.is != nil && !errors.Is(err, f.is) {
					t.Errorf("%v: the error is %v, want %v", bad, err, f.is)
				}
			}
			for _, good := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, time.Hour, 100 * 365 * 24 * time.Hour} {
				if _, err := valid(func(o *Options) { f.set(o, good) }).withDefaults(); err != nil {
					t.Errorf("%v: %v", good, err)
				}
			}
		})
	}
	for _, test := range []struct {
		name  string
		set   func(o *Options)
		is    error
		parts []string
	}{
		{"TTL that is not set", func(o *Options) { o.TTL = 0 }, ErrTTL, []string{"Options.TTL", "not set"}},
		{"prefix with a brace", func(o *Options) { o.Prefix = "a{b" }, ErrPrefix, []string{"prefix", `"a{b"`, "'{'"}},
		{"jitter of one", func(o *Options) { o.Jitter = 1 }, nil, []string{"Options.Jitter", "is 1:", "at least 0 and below 1"}},
		{"jitter above one", func(o *Options) { o.Jitter = 1.5 }, nil, []string{"Options.Jitter", "1.5", "below 1"}},
		{"jitter below zero", func(o *Options) { o.Jitter = -0.1 }, nil, []string{"Options.Jitter", "-0.1", "at least 0"}},
		{"jitter that is no number", func(o *Options) { o.Jitter = math.NaN() }, nil, []string{"Options.Jitter", "NaN", "at least 0 and below 1"}},
		{"infinite jitter", func(o *Options) { o.Jitter = math.Inf(1) }, nil, []string{"Options.Jitter", "+Inf"}},
		{"MaxLoads below zero", func(o *Options) { o.MaxLoads = -1 }, nil, []string{"Options.MaxLoads", "-1", "from 0"}},
		{"MaxLoads beyond all sense", func(o *Options) { o.MaxLoads = math.MaxInt }, nil, []string{"Options.MaxLoads", "9223372036854775807", "to 1073741824"}},
		{"MaxUnleasedLoads below zero", func(o *Options) { o.MaxUnleasedLoads = -1 }, nil, []string{"Options.MaxUnleasedLoads", "-1", "from 1"}},
		{"MaxUnleasedLoads beyond all sense", func(o *Options) { o.MaxUnleasedLoads = math.MaxInt }, nil, []string{"Options.MaxUnleasedLoads", "to 1073741824"}},
		{"MaxValueSize below zero", func(o *Options) { o.MaxValueSize = -1 }, nil, []string{"Options.MaxValueSize", "-1", "from 1"}},
		{"MaxValueSize above what a server takes", func(o *Options) { o.MaxValueSize = 512<<20 + 1 }, nil, []string{"Options.MaxValueSize", "536870913", "to 536870912"}},
		{"FailureBackoff below a millisecond", func(o *Options) { o.FailureBackoff = 999 * time.Microsecond }, nil, []string{"Options.FailureBackoff", "999µs", "at least 1ms"}},
		{"FailureBackoff beyond all sense", func(o *Options) { o.FailureBackoff = math.MaxInt64 }, nil, []string{"Options.FailureBackoff", "at most 100 years"}},
		{"unknown OnUnavailable", func(o *Options) { o.OnUnavailable = 2 }, nil, []string{"Options.OnUnavailable", "2", "UnavailableFail or UnavailableLoad"}},
		{"unknown OnLeaseLost", func(o *Options) { o.OnLeaseLost = 3 }, nil, []string{"Options.OnLeaseLost", "3", "LostReturn, LostReread or LostFail"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := optionsError(t, valid(test.set), test.parts...)
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("the error is %v, want %v", err, test.is)
			}
		})
	}
}

// optionsError returns the error of New for o, which must say all parts.
func optionsError(t *testing.T, o Options, parts ...string) error {
	t.Helper()
	c, err := New[string](&scripted{}, o)
	if err == nil || c != nil {
		t.Fatalf("New = %v, %v; want an error that says %q", c, err, parts)
	}
	if !strings.HasPrefix(err.Error(), "leasecache: ") {
		t.Errorf("the error is %q, want it to begin with the package", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q, want it to say %q", err, part)
		}
	}
	return err
}

func TestBoundsAreInclusive(t *testing.T) {
	for name, set := range map[string]func(o *Options){
		"smallest jitter":          func(o *Options) { o.Jitter = math.SmallestNonzeroFloat64 },
		"largest jitter":           func(o *Options) { o.Jitter = math.Nextafter(1, 0) },
		"negative zero as jitter":  func(o *Options) { o.Jitter = math.Copysign(0, -1) },
		"one load at a time":       func(o *Options) { o.MaxLoads, o.MaxUnleasedLoads = 1, 1 },
		"smallest MaxValueSize":    func(o *Options) { o.MaxValueSize = 1 },
		"largest MaxValueSize":     func(o *Options) { o.MaxValueSize = 512 << 20 },
		"prefix with other braces": func(o *Options) { o.Prefix = "a}b" },
		"binary prefix":            func(o *Options) { o.Prefix = "\x00\xff" },
		"no FailureBackoff":        func(o *Options) { o.FailureBackoff = -1 },
		"least FailureBackoff":     func(o *Options) { o.FailureBackoff = math.MinInt64 },
		"all of a millisecond": func(o *Options) {
			o.FailureBackoff = time.Millisecond
			o.TTL, o.NotFoundTTL, o.Stale, o.Lease = time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond
			o.LoadTimeout, o.WaitBound, o.PollInterval, o.DropBackoff = time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond
		},
	} {
		if _, err := valid(set).withDefaults(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheLongestLeaseLeavesItsDefaultsInBounds(t *testing.T) {
	o, err := valid(func(o *Options) { o.Lease = math.MaxInt64 }).withDefaults()
	if err != nil && !strings.Contains(err.Error(), "Options.Lease") {
		t.Errorf("the error is %q, want it to name the field that was set", err)
	}
	if err == nil && o.WaitBound < time.Millisecond {
		t.Errorf("WaitBound is %v", o.WaitBound)
	}
}

func TestOptionsOfZeroSayWhatToSet(t *testing.T) {
	err := optionsError(t, Options{}, "Options.TTL is not set", "set for how long values are cached")
	if !errors.Is(err, ErrTTL) {
		t.Errorf("the error is %v, want ErrTTL", err)
	}
	if s, err := NewStore(&scripted{}, StoreOptions{}); err != nil || s.callTimeout != time.Second {
		t.Errorf("NewStore with zero options: %v", err)
	}
}

func TestACallTimeoutOutOfBoundsIsAnError(t *testing.T) {
	for _, bad := range []time.Duration{1, 999 * time.Microsecond, -1, -time.Second} {
		_, err := NewStore(&scripted{}, StoreOptions{CallTimeout: bad})
		if err == nil || !strings.Contains(err.Error(), "StoreOptions.CallTimeout is "+bad.String()+": it must be at least 1ms") {
			t.Errorf("%v: the error is %v", bad, err)
		}
	}
}

func TestJitterShortensByItsFractionAtMostAndNeverBelowAMillisecond(t *testing.T) {
	for _, test := range []struct {
		ttl       time.Duration
		fraction  float64
		low, high time.Duration
	}{
		{time.Hour, 0, time.Hour, time.Hour},
		{time.Hour, 0.5, 30 * time.Minute, time.Hour},
		{time.Hour, 0.01, time.Hour - 36*time.Second, time.Hour},
		{time.Hour, math.Nextafter(1, 0), time.Millisecond, time.Hour},
		{time.Millisecond, 0.9, time.Millisecond, time.Millisecond},
		{2 * time.Millisecond, 0.9, time.Millisecond, 2 * time.Millisecond},
		{math.MaxInt64, 0.5, math.MaxInt64/2 - 1<<10, math.MaxInt64},
	} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			d := jitter(test.ttl, test.fraction)
			if d < test.low || d > test.high {
				t.Fatalf("jitter(%v, %v) = %v, want from %v to %v", test.ttl, test.fraction, d, test.low, test.high)
			}
			low, high = min(low, d), max(high, d)
		}
		// All of the range is used, not only a part of it.
		if width := test.high - test.low; high-low < width/2 {
			t.Errorf("jitter(%v, %v) is from %v to %v", test.ttl, test.fraction, low, high)
		}
	}
}
