package leasecache_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leasecache/leasecache"
	"github.com/leasecache/leasecache/driver"
)

// These examples are compiled, but not run, because the core imports no client.
// Examples that run on an embedded server are in package
// [github.com/leasecache/leasecache/adapters/miniredis].

type Product struct {
	ID   string
	Name string
}

var (
	ctx = context.Background()
	db  *sql.DB
	// products is made by leasecache.New, as in the first example.
	products *leasecache.Cache[Product]
)

// The first argument of New is what an adapter's constructor returns for the
// client that the service already has, such as goredis.New(rdb).
func Example() { //nolint:testableexamples // needs a server
	var adapter driver.Evaler

	products, err := leasecache.New[Product](adapter, leasecache.Options{
		Prefix: "catalog:",
		TTL:    10 * time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}

	p, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
		p := Product{ID: "42"}
		err := db.QueryRowContext(ctx, `SELECT name FROM products WHERE id = 42`).Scan(&p.Name)
		return p, err
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Name)
}

// A client can also be made by the name of its driver and a DSN. Several caches
// share it, and the Store closes it. The driver is registered by importing its
// package: import _ "github.com/leasecache/leasecache/adapters/goredis".
func ExampleOpen() { //nolint:testableexamples // needs a server
	store, err := leasecache.Open("goredis", "redis://localhost:6379/0", leasecache.StoreOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Ping(ctx); err != nil {
		log.Fatal(err)
	}

	products, err := leasecache.New[Product](store, leasecache.Options{Prefix: "catalog:", TTL: 10 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer products.Close(ctx)
	pages, err := leasecache.New[[]byte](store, leasecache.Options{Prefix: "page:", TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer pages.Close(ctx)
}

// A key that the source does not have is cached as such for NotFoundTTL.
func ExampleCache_Get_notFound() { //nolint:testableexamples // needs a server
	_, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
		p := Product{ID: "42"}
		err := db.QueryRowContext(ctx, `SELECT name FROM products WHERE id = 42`).Scan(&p.Name)
		if errors.Is(err, sql.ErrNoRows) {
			err = leasecache.ErrNotFound
		}
		return p, err
	})
	if errors.Is(err, leasecache.ErrNotFound) {
		fmt.Println("there is no product 42")
	}
}

// Invalidate comes after the commit. A load that starts between the two would
// otherwise cache the old row.
func ExampleCache_Invalidate() { //nolint:testableexamples // needs a server
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `UPDATE products SET name = 'lamp' WHERE id = 42`); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}

	err = products.Invalidate(ctx, "42")
	if failed, ok := errors.AsType[*leasecache.InvalidateError](err); ok {
		log.Printf("may still be cached, to be invalidated again: %q", failed.Keys)
	}
}

// Many keys cost a round trip for those that are cached, and one call of the loader
// for the others.
func ExampleCache_GetMany() { //nolint:testableexamples // needs a server
	ids := []string{"41", "42", "43"}
	found, err := products.GetMany(ctx, ids, func(ctx context.Context, missing []string) (map[string]Product, error) {
		rows, err := db.QueryContext(ctx, `SELECT id, name FROM products WHERE id = ANY($1)`, missing)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		loaded := map[string]Product{}
		for rows.Next() {
			var p Product
			if err := rows.Scan(&p.ID, &p.Name); err != nil {
				return nil, err
			}
			loaded[p.ID] = p
		}
		for _, id := range missing {
			if _, ok := loaded[id]; !ok {
				leasecache.LoadFrom(ctx).NotFound(id)
			}
		}
		return loaded, rows.Err()
	})
	if failed, ok := errors.AsType[*leasecache.BatchError](err); ok {
		log.Printf("could not be read: %q", failed.Keys)
	}
	for _, id := range ids {
		if p, ok := found[id]; ok {
			fmt.Println(p.Name)
		}
	}
}

// A tier in front of the cache keeps a value for no longer than the server does,
// and not at all if the server does not cache it.
func ExampleCache_Read() { //nolint:testableexamples // needs a server
	load := func(ctx context.Context) (Product, error) { return Product{ID: "42"}, nil }

	res, err := products.Read(ctx, "42", load)
	if err != nil {
		log.Fatal(err)
	}
	if res.Cached() {
		keep(res.Value, res.TTL)
	}
}

func keep(Product, time.Duration) {}

// A loader decides only what it wants to.
func ExampleLoadFrom() { //nolint:testableexamples // needs a server
	_, err := products.Get(ctx, "42", func(ctx context.Context) (Product, error) {
		p := Product{ID: "42"}
		var draft bool
		err := db.QueryRowContext(ctx, `SELECT name, draft FROM products WHERE id = 42`).Scan(&p.Name, &draft)
		if draft {
			leasecache.LoadFrom(ctx).SetTTL(10 * time.Second)
		}
		return p, err
	})
	if err != nil {
		log.Fatal(err)
	}
}
