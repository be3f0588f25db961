module github.com/leasecache/leasecache/adapters/miniredis

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/leasecache/leasecache v0.0.0
	go.uber.org/goleak v1.3.0
)

require github.com/yuin/gopher-lua v1.1.1 // indirect

replace github.com/leasecache/leasecache => ../..
