module github.com/leasecache/leasecache/adapters/rueidis

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/leasecache/leasecache v0.0.0
	github.com/redis/rueidis v1.0.79
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/leasecache/leasecache => ../..
