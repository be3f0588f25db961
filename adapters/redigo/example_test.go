package redigo_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/redigo"
	"github.com/leasecache/leasecache/driver"
)

func ExampleNew() {
	// The service's own pool. A real one dials by redis.DialContext.
	pool := &redis.Pool{DialContext: dialExample, MaxIdle: 64}
	defer pool.Close()

	names, err := leasecache.New[string](redigo.New(pool), leasecache.Options{
		Prefix: "names:",
		TTL:    10 * time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	name, err := names.Get(context.Background(), "42", func(context.Context) (string, error) {
		return "loaded from the source", nil
	})
	fmt.Println(name, err)
	// Output: cached <nil>
}

func ExampleNew_open() {
	// A blank import of this package makes the driver known by its name.
	_, err := driver.Open("redigo", "redis://:secret@localhost:6379?pool_size=many")
	fmt.Println(err)
	// Output: leasecache: open with driver "redigo": dsn: parameter "pool_size": want a number from 1 to 65535
}

// dialExample connects to a server that has "cached" under every key.
func dialExample(context.Context) (redis.Conn, error) {
	client, server := net.Pipe()
	go func() {
		r := bufio.NewReader(server)
		for {
			var words, size int
			if _, err := fmt.Fscanf(r, "*%d\r\n", &words); err != nil {
				return
			}
			for range words {
				if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
					return
				}
				if _, err := r.Discard(size + 2); err != nil {
					return
				}
			}
			if _, err := io.WriteString(server, "$6\r\ncached\r\n"); err != nil {
				return
			}
		}
	}()
	return redis.NewConn(client, time.Second, time.Second), nil
}
