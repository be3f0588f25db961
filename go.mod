module github.com/leasecache/leasecache

go 1.26.0
