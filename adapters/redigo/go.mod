module github.com/leasecache/leasecache/adapters/redigo

go 1.26.0

require (
	github.com/gomodule/redigo v1.9.3
	github.com/google/go-cmp v0.7.0
	github.com/leasecache/leasecache v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/leasecache/leasecache => ../..
