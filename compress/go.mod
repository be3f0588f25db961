module github.com/leasecache/leasecache/compress

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/klauspost/compress v1.20.4
	github.com/leasecache/leasecache v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/leasecache/leasecache => ..
