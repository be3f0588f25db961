package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	redigopool "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	glideclient "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"
	"github.com/valkey-io/valkey-glide/go/v2/pipeline"
	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/glide"
	"github.com/leasecache/leasecache/adapters/goredis"
	"github.com/leasecache/leasecache/adapters/redigo"
	"github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/adapters/valkeygo"
	"github.com/leasecache/leasecache/driver"
)

const adapters = "github.com/leasecache/leasecache/adapters/"

func TestAClientOfAWrongTypeIsAnErrorThatSaysWhatToHandOver(t *testing.T) {
	_, addr := startOne(t)
	conn, err := redigopool.Dial("tcp", addr.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var (
		rueidisClient rueidisclient.Client
		valkeyClient  valkey.Client
	)
	for _, tt := range []struct {
		name   string
		client any
		want   []string
	}{
		{"nil", nil, []string{"client is nil", "hand over the client that the service uses"}},
		{"something else", new(sql.DB), []string{
			"*sql.DB", adapters + "goredis", adapters + "redigo", adapters + "rueidis", adapters + "valkeygo", adapters + "glide", "implement driver.Evaler",
		}},
		{"something else by value", http.Client{}, []string{"http.Client", adapters + "goredis"}},
		{"options of go-redis", &redis.Options{Password: "s3cret"}, []string{`driver "goredis" takes other types`, "*redis.Client, *redis.ClusterClient or *redis.Ring"}},
		{"transaction of go-redis", new(redis.Tx), []string{`driver "goredis"`, "hand over the client that it was made from"}},
		{"connection of redigo", conn, []string{`driver "redigo" takes other types`, "*redis.Pool"}},
		{"options of rueidis", rueidisclient.ClientOption{Password: "s3cret"}, []string{`driver "rueidis" takes other types`, "hand over a rueidis.Client"}},
		{"pointer to a client of rueidis", &rueidisClient, []string{`driver "rueidis" takes other types`, "hand over a rueidis.Client"}},
		{"pointer to a client of valkey-go", &valkeyClient, []string{`driver "valkeygo" takes other types`, "hand over a valkey.Client"}},
		{"monitor of glide", new(glideclient.MonitorClient), []string{`driver "glide" takes other types`, "*glide.Client or *glide.ClusterClient"}},
		{"client of glide by value", glideclient.Client{}, []string{`driver "glide" takes other types`, "*glide.Client or *glide.ClusterClient"}},
		{"options of glide", config.NewClientConfiguration().WithCredentials(config.NewServerCredentials("", "s3cret")), []string{`driver "glide" takes other types`}},
		{"driver", goredis.New(addr), []string{"it is a driver.Evaler already", "leasecache.New"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := leasecache.Adopt(tt.client, leasecache.StoreOptions{})
			if err == nil || s != nil {
				t.Fatalf("Adopt = %v, %v; want an error", s, err)
			}
			for _, want := range append(tt.want, "leasecache: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error prints the password: %v", err)
			}
		})
	}
}

// Each constructor has the same style: it returns no error and does not panic, and
// what it returns for nil says so when a cache is made of it.
func TestANilClientIsAnErrorOfTheCacheThatIsMadeOfIt(t *testing.T) {
	type (
		rueidisWrapper struct{ rueidisclient.Client }
		valkeyWrapper  struct{ valkey.Client }
	)
	for _, tt := range []struct {
		name   string
		driver driver.Evaler
		adopt  any // the same for the registry, nil for an interface without a type
	}{
		{"goredis: nil", goredis.New(nil), nil},
		{"goredis: nil *redis.Client", goredis.New((*redis.Client)(nil)), (*redis.Client)(nil)},
		{"goredis: nil *redis.ClusterClient", goredis.New((*redis.ClusterClient)(nil)), (*redis.ClusterClient)(nil)},
		{"goredis: nil *redis.Ring", goredis.New((*redis.Ring)(nil)), (*redis.Ring)(nil)},
		{"redigo: nil", redigo.New(nil), nil},
		{"redigo: nil *redis.Pool", redigo.New((*redigopool.Pool)(nil)), (*redigopool.Pool)(nil)},
		{"rueidis: nil", rueidis.New(nil), nil},
		{"rueidis: nil pointer", rueidis.New((*rueidisWrapper)(nil)), (*rueidisWrapper)(nil)},
		{"valkeygo: nil", valkeygo.New(nil), nil},
		{"valkeygo: nil pointer", valkeygo.New((*valkeyWrapper)(nil)), (*valkeyWrapper)(nil)},
		{"glide: nil", glide.New[pipeline.ClusterBatch, pipeline.ClusterBatchOptions](nil), nil},
		{"glide: nil *glide.Client", glide.New((*glideclient.Client)(nil)), (*glideclient.Client)(nil)},
		{"glide: nil *glide.ClusterClient", glide.New((*glideclient.ClusterClient)(nil)), (*glideclient.ClusterClient)(nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			adapter, _, _ := strings.Cut(tt.name, ":")
			check := func(what string, err error) {
				t.Helper()
				if msg := errText(err); !strings.Contains(msg, adapter+": ") || !strings.Contains(msg, " is nil: hand over the ") {
					t.Errorf("%s: %v; want an error of %s that says what to hand over", what, err, adapter)
				}
			}
			_, err := leasecache.New[string](tt.driver, leasecache.Options{TTL: time.Minute})
			check("New", err)
			_, err = leasecache.NewStore(tt.driver, leasecache.StoreOptions{})
			check("NewStore", err)
			_, err = tt.driver.Eval(t.Context(), driver.NewScript("s", "return 1"), []string{"k"}, nil)
			check("Eval", err)
			if tt.adopt != nil {
				_, err = leasecache.Adopt(tt.adopt, leasecache.StoreOptions{})
				check("Adopt", err)
			}
		})
	}
}

func TestAClientThatItsOwnerClosedIsUnavailable(t *testing.T) {
	server, _ := startOne(t)
	for _, client := range serviceClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			for _, used := range []bool{false, true} {
				svc := client.mustDial(t, connect{addr: server.Addr})
				if used { // else the client closes without a connection, where it makes them late
					if err := newStore(t, svc.driver, patience).Ping(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				svc.close()
				store := newStore(t, svc.driver, patience)
				c := newCache(t, store, leasecache.Options{Prefix: client.name + ":"})
				check := func(name string, call func(context.Context) error) {
					t.Helper()
					err := ends(t, name, call)
					if !errors.Is(err, leasecache.ErrUnavailable) {
						t.Errorf("used=%v, %s: %v; want ErrUnavailable", used, name, err)
					}
					if err != nil && (!client.isClosed(err) || errors.Is(err, leasecache.ErrClosed)) {
						t.Errorf("used=%v, %s: %v; want the client's own error, and not ErrClosed, which is ours", used, name, err)
					}
				}
				check("Ping", store.Ping)
				for name, call := range operations(c, constant("v")) {
					if name != "Invalidate" {
						check(name, func(ctx context.Context) error { return call(ctx, name) })
					}
				}
				// It tries until its context ends. It comes last, because a client of
				// rueidis that was closed connects again after a call whose context
				// ended at the wrong moment.
				check("Invalidate", func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
					defer cancel()
					err := c.Invalidate(ctx, "k")
					if ie, ok := errors.AsType[*leasecache.InvalidateError](err); !ok || len(ie.Keys) != 1 || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("used=%v, Invalidate: %v; want an error that names the key and says that the time is over", used, err)
					}
					return err
				})
			}
		})
	}
}

func TestALoadIsNotLostWhenTheClientIsClosedMeanwhile(t *testing.T) {
	server, admin := startOne(t)
	for _, client := range serviceClients {
		t.Run(client.name, func(t *testing.T) {
			t.Parallel()
			svc := client.mustDial(t, connect{addr: server.Addr})
			prefix := client.name + ":"
			c := newCache(t, newStore(t, svc.driver, time.Second), leasecache.Options{Prefix: prefix})
			g := newGate()
			r := goRead(t, c, "k", g.then(constant("v")))
			await(t, "the load begins", g.began)
			svc.close()
			g.open()
			r.want(t, "the reader", "v", leasecache.Loaded, leasecache.ServerDown)
			wantStored(t, admin, prefix, "k", "")

			// Those who would rather have the source than nothing still read.
			c = newCache(t, newStore(t, svc.driver, time.Second), leasecache.Options{Prefix: prefix, OnUnavailable: leasecache.UnavailableLoad})
			goRead(t, c, fmt.Sprint(client.name), constant("w")).want(t, "with UnavailableLoad", "w", leasecache.Loaded, leasecache.ServerDown)
		})
	}
}
