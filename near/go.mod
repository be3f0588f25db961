module github.com/leasecache/leasecache/near

go 1.26.0

require (
	github.com/leasecache/leasecache v0.0.0
	github.com/maypok86/otter/v2 v2.4.0
	go.uber.org/goleak v1.3.0
)

replace github.com/leasecache/leasecache => ..
