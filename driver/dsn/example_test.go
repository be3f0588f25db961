package dsn_test

import (
	"fmt"
	"time"

	"github.com/leasecache/leasecache/driver/dsn"
)

func ExampleForm_Parse() {
	form := dsn.Form{
		Schemes: []string{"redis", "rediss"},
		Params: []dsn.Param{
			{Name: "dial_timeout", Value: dsn.Duration()},
			{Name: "skip_verify", Value: dsn.Bool(), Schemes: []string{"rediss"}},
		},
	}
	d, err := form.Parse("rediss://user:secret@localhost/2?skip_verify=true")
	fmt.Println(d.Addr, d.DB, d.TLS, d.Duration("dial_timeout", 5*time.Second), d.Bool("skip_verify"), err)

	_, err = form.Parse("redis://user:secret@localhost?skip_verify=true&dial_timeout=soon")
	fmt.Println(err)
	// Output:
	// localhost:6379 2 true 5s true <nil>
	// dsn: parameter "dial_timeout": want a duration such as 500ms, above 0
}
