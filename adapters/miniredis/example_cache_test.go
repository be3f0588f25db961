package miniredis_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/adapters/miniredis"
)

type product struct {
	ID   string
	Name string
}

// One load serves all who miss the key.
func Example_cache() {
	server := miniredis.New()
	defer server.Close()
	ctx := context.Background()

	products, err := leasecache.New[product](server, leasecache.Options{
		Prefix: "catalog:",
		TTL:    10 * time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer products.Close(ctx)

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := products.Get(ctx, "42", func(ctx context.Context) (product, error) {
				return product{ID: "42", Name: "lamp"}, nil
			})
			if err != nil {
				log.Print(err)
			}
		})
	}
	wg.Wait()

	stored, _ := server.Miniredis().Get("catalog:v:{42}")
	fmt.Println("loads:", products.Stats().Loads)
	fmt.Println("cached:", stored)
	// Output:
	// loads: 1
	// cached: {"ID":"42","Name":"lamp"}
}

// A load that is under way when its key is invalidated is not cached. Its own
// caller gets what was loaded, marked as uncached.
func Example_lateFill() {
	server := miniredis.New()
	defer server.Close()
	ctx := context.Background()

	names, err := leasecache.New[string](server, leasecache.Options{Prefix: "name:", TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer names.Close(ctx)

	row := "lamp"
	res, err := names.Read(ctx, "42", func(ctx context.Context) (string, error) {
		loaded := row
		// Meanwhile another process changes the row, and invalidates the key.
		row = "lantern"
		if err := names.Invalidate(ctx, "42"); err != nil {
			return "", err
		}
		return loaded, nil
	})
	fmt.Println(res.Value, res.Source, res.Cached(), res.Uncached, err)

	res, err = names.Read(ctx, "42", func(ctx context.Context) (string, error) { return row, nil })
	fmt.Println(res.Value, res.Source, res.Cached(), err)
	// Output:
	// lamp loaded false lease lost <nil>
	// lantern loaded true <nil>
}

// A loader decides for how long its value is cached, or that it is not.
func Example_loadFrom() {
	server := miniredis.New()
	defer server.Close()
	ctx := context.Background()

	prices, err := leasecache.New[int](server, leasecache.Options{Prefix: "price:", TTL: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	defer prices.Close(ctx)

	_, err = prices.Get(ctx, "offer", func(ctx context.Context) (int, error) {
		leasecache.LoadFrom(ctx).SetTTL(5 * time.Second)
		return 99, nil
	})
	fmt.Println(server.Miniredis().TTL("price:v:{offer}").Round(time.Second), err)

	res, err := prices.Read(ctx, "draft", func(ctx context.Context) (int, error) {
		leasecache.LoadFrom(ctx).DoNotStore()
		return 0, nil
	})
	fmt.Println(res.Value, res.Cached(), res.Uncached, err)
	// Output:
	// 5s <nil>
	// 0 false do not store <nil>
}

// What the source does not have is cached as such, for a time of its own.
func Example_notFound() {
	server := miniredis.New()
	defer server.Close()
	ctx := context.Background()

	names, err := leasecache.New[string](server, leasecache.Options{
		Prefix:      "name:",
		TTL:         time.Hour,
		NotFoundTTL: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer names.Close(ctx)

	for range 2 {
		_, err = names.Get(ctx, "43", func(ctx context.Context) (string, error) {
			return "", fmt.Errorf("no product 43: %w", leasecache.ErrNotFound)
		})
		fmt.Println(errors.Is(err, leasecache.ErrNotFound))
	}
	fmt.Println("loads:", names.Stats().Loads)
	// Output:
	// true
	// true
	// loads: 1
}

// With a stale window, a read that would wait for the next load gets the value
// from before the invalidation, and is told so.
func Example_stale() {
	server := miniredis.New()
	defer server.Close()
	ctx := context.Background()

	names, err := leasecache.New[string](server, leasecache.Options{
		Prefix: "name:",
		TTL:    time.Hour,
		Stale:  30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer names.Close(ctx)

	load := func(value string) leasecache.Loader[string] {
		return func(context.Context) (string, error) { return value, nil }
	}
	if _, err := names.Get(ctx, "42", load("lamp")); err != nil {
		log.Fatal(err)
	}
	if err := names.Invalidate(ctx, "42"); err != nil {
		log.Fatal(err)
	}

	res, err := names.Read(ctx, "42", func(ctx context.Context) (string, error) {
		// While this load runs, another read need not wait for it.
		other, err := names.Read(ctx, "42", load("never called"))
		fmt.Println(other.Value, other.Source, other.Cached(), err)
		return "lantern", nil
	})
	fmt.Println(res.Value, res.Source, res.Cached(), err)
	// Output:
	// lamp stale false <nil>
	// lantern loaded true <nil>
}
