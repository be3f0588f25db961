// Package noadapter tests what a program is told that has a client, and has
// forgotten to import the adapter for it. It must import no adapter.
package noadapter

import (
	"database/sql"
	"strings"
	"testing"

	redigopool "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

func TestAClientWithoutItsAdapterIsAnErrorThatNamesTheImportToAdd(t *testing.T) {
	if names := driver.Drivers(); len(names) > 0 {
		t.Fatalf("registered are %q: this test needs a program without adapters", names)
	}
	single := redis.NewClient(&redis.Options{})
	defer single.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	type wrapper struct {
		name string
		*redis.Client
	}
	for _, tt := range []struct {
		name, adapter, client string
		of                    any
	}{
		{"go-redis", "goredis", "*redis.Client", single},
		{"go-redis, a cluster", "goredis", "*redis.ClusterClient", cluster},
		{"go-redis, nil", "goredis", "*redis.Client", (*redis.Client)(nil)},
		{"go-redis, in a type of the service", "goredis", "*redis.Client", wrapper{"mine", single}},
		{"go-redis, a pointer to such a type", "goredis", "*redis.Client", &wrapper{"mine", single}},
		{"redigo", "redigo", "*redis.Pool", new(redigopool.Pool)},
		{"rueidis", "rueidis", "rueidis.Client", rueidis.ClientOption{}},
		{"rueidis, in a type of the service", "rueidis", "rueidis.Client", withHooks{}},
		{"valkey-go", "valkeygo", "valkey.Client", valkey.ClientOption{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := leasecache.Adopt(tt.of, leasecache.StoreOptions{})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{
				"no driver takes a client of type", "registered are none",
				`add: import _ "github.com/leasecache/leasecache/adapters/` + tt.adapter + `"`, tt.client,
			} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not contain %q", err, want)
				}
			}
		})
	}
	_, err := leasecache.Adopt(new(sql.DB), leasecache.StoreOptions{})
	for _, adapter := range []string{"goredis", "redigo", "rueidis", "valkeygo"} {
		if err == nil || !strings.Contains(err.Error(), "/adapters/"+adapter+`" for `) {
			t.Errorf("an unknown client: %v; want that it names adapters/%s", err, adapter)
		}
	}
	if e, err := driver.Open("goredis", "redis://:s3cret@localhost"); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("Open = %v, %v; want an error without the password", e, err)
	}
}

// withHooks is a client as those with hooks are.
type withHooks struct{ rueidis.Client }
