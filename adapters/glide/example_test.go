package glide_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os/signal"
	"strings"
	"syscall"
	"time"

	glide "github.com/valkey-io/valkey-glide/go/v2"
	"github.com/valkey-io/valkey-glide/go/v2/config"

	"github.com/leasecache/leasecache"
	lcglide "github.com/leasecache/leasecache/adapters/glide"
	"github.com/leasecache/leasecache/driver"
)

func ExampleNew() {
	// Without this a connection that breaks can end the process: see Limits.
	signal.Ignore(syscall.SIGPIPE)

	// The service's own client. The server is one for this example.
	client, err := glide.NewClient(config.NewClientConfiguration().WithAddress(exampleServer()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	names, err := leasecache.New[string](lcglide.New(client), leasecache.Options{
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
	_, err := driver.Open("glide", "redis://user:secret@localhost:6379/first")
	fmt.Println(err)
	// Output: leasecache: open with driver "glide": dsn: database: want a number from 0, as in redis://host:6379/0; if this is a part of the user name or password, write a slash in them as %2F
}

// exampleServer starts a server that has "cached" under every key. It ends with
// its connection.
func exampleServer() *config.NodeAddress {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		l.Close()
		r := bufio.NewReader(conn)
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
				reply = "%1\r\n+proto\r\n:3\r\n"
			case "INFO":
				reply = "$11\r\nrole:master\r\n"
			case "GET":
				reply = "$6\r\ncached\r\n"
			}
			if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
	}()
	return &config.NodeAddress{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
}
