package compress_test

import (
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/compress"
)

func Example() {
	codec, err := compress.New(compress.Options{Threshold: 4 << 10})
	if err != nil {
		log.Fatal(err)
	}
	options := leasecache.Options{Prefix: "pages:", TTL: time.Hour, Codec: codec}
	// cache, err := leasecache.New[Page](goredis.New(rdb), options)

	type Page struct{ Body string }
	for _, p := range []Page{{"short"}, {strings.Repeat("and so on ", 1000)}} {
		data, err := options.Codec.Marshal(p)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("plain JSON:", data[0] == '{', "smaller:", len(data) < len(p.Body))
	}
	// Output:
	// plain JSON: true smaller: false
	// plain JSON: false smaller: true
}
