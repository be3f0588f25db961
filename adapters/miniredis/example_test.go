package miniredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leasecache/leasecache/adapters/miniredis"
	"github.com/leasecache/leasecache/driver"
)

func Example() {
	e, err := driver.Open("miniredis", "miniredis://example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.(driver.Closer).Close()

	greet := driver.NewScript("greet", `return "hello, " .. ARGV[1]`)
	reply, err := e.Eval(context.Background(), greet, []string{"{42}"}, []string{"world"})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, _ := reply.Str()
	fmt.Println(s)
	// Output: hello, world
}

func ExampleServer_Miniredis() {
	s := miniredis.New()
	defer s.Close()

	ctx := context.Background()
	greet := driver.NewScript("greet", `return redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])`)
	if _, err := s.Eval(ctx, greet, []string{"greeting"}, []string{"hello", "3600000"}); err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(s.Get(ctx, "greeting"))
	s.Miniredis().FastForward(time.Hour)
	fmt.Println(s.Get(ctx, "greeting"))
	// Output:
	// hello true <nil>
	//  false <nil>
}
