package rueidis_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/leasecache/leasecache"
	lcrueidis "github.com/leasecache/leasecache/adapters/rueidis"
	"github.com/leasecache/leasecache/driver"
)

func ExampleNew() {
	// The service's own client.
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"localhost:6379"},
		// Only for this example, so that it runs without a server:
		DialCtxFn: dialExample, ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	names, err := leasecache.New[string](lcrueidis.New(client), leasecache.Options{
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
	_, err := driver.Open("rueidis", "redis://user:secret@localhost:6379/first")
	fmt.Println(err)
	// Output: leasecache: open with driver "rueidis": dsn: database: want a number from 0, as in redis://host:6379/0; if this is a part of the user name or password, write a slash in them as %2F
}

// dialExample connects to a server that has "cached" under every key.
func dialExample(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		r := bufio.NewReader(server)
		for {
			var lines, size int
			if _, err := fmt.Fscanf(r, "*%d\r\n", &lines); err != nil {
				return
			}
			command := make([]string, lines)
			for i := range command {
				if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
					return
				}
				word := make([]byte, size+2)
				if _, err := io.ReadFull(r, word); err != nil {
					return
				}
				command[i] = string(word[:size])
			}
			reply := "+OK\r\n"
			switch strings.ToUpper(command[0]) {
			case "HELLO":
				reply = "-ERR unknown command 'HELLO'\r\n" // this server has only RESP2
			case "GET":
				reply = "$6\r\ncached\r\n"
			}
			if _, err := io.WriteString(server, reply); err != nil {
				return
			}
		}
	}()
	return client, nil
}
