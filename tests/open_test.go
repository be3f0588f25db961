package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

func TestUnknownDriver(t *testing.T) {
	t.Run("is an error that lists the drivers there are", func(t *testing.T) {
		_, err := leasecache.Open("nosuch", "redis://localhost", leasecache.StoreOptions{})
		for _, want := range append(driver.Drivers(), `"nosuch"`, "forgotten import?") {
			if !strings.Contains(errText(err), want) {
				t.Errorf("the error %q does not contain %q", errText(err), want)
			}
		}
	})
	t.Run("names the import to add, if the driver is one of ours", func(t *testing.T) {
		for _, name := range []string{"goredis", "miniredis"} {
			if slices.Contains(driver.Drivers(), name) {
				continue // this binary has it
			}
			_, err := leasecache.Open(name, "redis://localhost", leasecache.StoreOptions{})
			want := `import _ "github.com/leasecache/leasecache/adapters/` + name + `"`
			if !strings.Contains(errText(err), want) {
				t.Errorf("the error %q does not contain %q", errText(err), want)
			}
		}
	})
	t.Run("never prints the DSN, which was meant for another", func(t *testing.T) {
		for _, name := range []string{"nosuch", "miniredis"} {
			_, err := leasecache.Open(name, "redis://:hunter2@localhost/?no_such_parameter=1", leasecache.StoreOptions{})
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v; want an error without the password", err)
			}
		}
	})
}

func TestBadDSN(t *testing.T) {
	const password = "hunter2"
	for _, dsn := range []string{
		"",
		"hunter2",
		":hunter2@localhost:6379",
		"postgres://:hunter2@localhost:6379",
		"redis://:hunter2@localhost:port",
		"redis://:hunter2@localhost:99999",
		"redis://:hunter2@localhost:6379/database",
		"redis://:hunter2@localhost:6379/0?pool_size=hunter2",
		"redis://:hunter2@localhost:6379/0?password=hunter2&password=hunter2&nonsense=1",
		"redis://:hunter2%zz@localhost:6379",
		"redis://:pass hunter2@localhost:6379",
		"redis://:a/hunter2@localhost:6379",
		"redis://:a?hunter2@localhost:6379",
		"redis://:a?hunter2=1@localhost:6379",
		"redis://:a#hunter2@localhost:6379",
		"redis://:a:hunter2%@localhost:6379",
		"redis://:hunter2@[::1",
		"redis://:hunter2@localhost:6379/0?pool_size=-99999999999999999999",
		"redis+cluster://:hunter2@localhost:6379/1",
		"redis+cluster://:hunter2@localhost:6379?addr=:hunter2@localhost:6380",
		"redis+cluster://:hunter2@localhost:6379?read_only=true",
		"redis+sentinel://:hunter2@localhost:26379/0",
		"redis+sentinel://:hunter2@localhost:26379/0?master_name=main&sentinel_password=hunter2&replica_only=true",
		"redis+ring://:hunter2@localhost:6379?addr=hunter2",
		"unix://:hunter2@",
		"unix://:hunter2@host/run/valkey.sock?db=hunter2",
	} {
		s, err := leasecache.Open("goredis", dsn, leasecache.StoreOptions{})
		if err == nil {
			t.Errorf("Open took a bad DSN: %s", dsn)
			s.Close()
			continue
		}
		if strings.Contains(err.Error(), password) {
			t.Errorf("Open(%q) prints the password: %v", dsn, err)
		}
		if !strings.HasPrefix(err.Error(), `leasecache: open with driver "goredis": dsn: `) {
			t.Errorf("Open(%q): %v; want what is wrong with the DSN, and where", dsn, err)
		}
	}
}
