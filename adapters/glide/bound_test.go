package glide

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"

	"github.com/leasecache/leasecache/driver"
)

func TestABoundedCallEndsWhenTheServerHangs(t *testing.T) {
	const d = 250 * time.Millisecond
	one, many := serve(t, answer(hang)), serve(t, answer(hang)).cluster()
	for kind, e := range map[string]driver.Evaler{"standalone": New(one.client(t)), "cluster": New(many.clusterClient(t))} {
		short, long := e.(driver.Bounder).Bound(d), e.(driver.Bounder).Bound(time.Minute)
		check := func(t *testing.T, call func() error) error {
			e.(evaler).doubtful.Store(false) // no probe
			begin := time.Now()
			err := call()
			if took := time.Since(begin); err == nil || took < d/2 || took > tooLong/2 {
				t.Errorf("ended after %v with %v; want an error after %v", took, err, d)
			}
			if errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%v is ErrNotSent", err)
			}
			if _, ok := errors.AsType[*glide.TimeoutError](err); !ok {
				t.Errorf("%v does not lead to the client's own error", err)
			}
			return err
		}
		for _, name := range []string{"EVALSHA", "GET"} {
			t.Run(kind+" "+name+" by the bound", func(t *testing.T) {
				err := check(t, func() error { return calls(t, short)[name](t.Context()) })
				if err != nil && (!strings.Contains(err.Error(), "within the bound of 250ms") || errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("%v; want that there was no reply within the bound of 250ms", err)
				}
			})
			for how, e := range map[string]driver.Evaler{"bounded": long, "unbounded": e} {
				t.Run(kind+" "+name+" by the caller's deadline, "+how, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					err := check(t, func() error { return calls(t, e)[name](ctx) })
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v; want context.DeadlineExceeded", err)
					}
				})
			}
		}
	}
}

func TestACallWithoutADeadlineEndsByTheClientsTimeout(t *testing.T) {
	s := serve(t, answer(hang))
	e := New(s.client(t, func(o *config.ClientConfiguration) { o.WithRequestTimeout(50 * time.Millisecond) }))
	_, err := eval(t.Context(), e)
	if _, ok := errors.AsType[*glide.TimeoutError](err); !ok || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("got %v; want a *glide.TimeoutError that is not ErrNotSent", err)
	}
}

func TestTheTimeoutOfABatch(t *testing.T) {
	far, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	near, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, tt := range []struct {
		name     string
		ctx      context.Context
		bound    time.Duration
		min, max time.Duration // 0 for no timeout
	}{
		{"is the client's own without a deadline and a bound", t.Context(), 0, 0, 0},
		{"is not above 5s for a far deadline", far, 0, 5 * time.Second, 5 * time.Second},
		{"is the bound", t.Context(), time.Minute, 50 * time.Second, time.Minute + time.Millisecond},
		{"is the bound when that is sooner", far, time.Minute, 50 * time.Second, time.Minute + time.Millisecond},
		{"is the deadline when that is sooner", near, time.Minute, time.Second, 10*time.Second + time.Millisecond},
		{"is a day at the most", t.Context(), 1 << 62, 24 * time.Hour, 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got time.Duration
			m := &mock{do: func(ctx context.Context, o pipeline.StandaloneBatchOptions) ([]any, error) {
				if ctx.Done() != nil {
					t.Error("the client has a context that ends")
				}
				if o.Timeout != nil {
					got = time.Duration(*o.Timeout) * time.Millisecond
				}
				return []any{nil}, nil
			}}
			if _, err := eval(tt.ctx, New(m).(evaler).bounded(tt.bound)); err != nil {
				t.Fatal(err)
			}
			if got < tt.min || got > tt.max {
				t.Errorf("got %v; want %v to %v", got, tt.min, tt.max)
			}
		})
	}
}

func TestACallHasTheValuesOfItsContext(t *testing.T) {
	type key struct{}
	var got any
	m := &mock{do: func(ctx context.Context, _ pipeline.StandaloneBatchOptions) ([]any, error) {
		got = ctx.Value(key{})
		return []any{nil}, nil
	}}
	_, _ = eval(context.WithValue(t.Context(), key{}, "v"), New(m))
	if got != "v" {
		t.Errorf("the client sees %v; want the values of the caller's context", got)
	}
}
