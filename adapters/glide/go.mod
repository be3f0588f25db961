module github.com/leasecache/leasecache/adapters/glide

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/leasecache/leasecache v0.0.0
	github.com/valkey-io/valkey-glide/go/v2 v2.5.3
	go.uber.org/goleak v1.3.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

replace github.com/leasecache/leasecache => ../..
