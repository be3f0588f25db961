package demo

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"; without cgo, and a small download
)

// product is the value that is cached. Each change of its row raises Version.
type product struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// source is the database behind the caches. It counts its loads itself, so that
// no cache is asked how well it did.
type source struct {
	db *sql.DB
	// rows is how much the query has to count, which is what makes it slow.
	rows int
}

const schema = `
CREATE TABLE products (
	key     TEXT PRIMARY KEY,
	name    TEXT NOT NULL,
	version INTEGER NOT NULL
);
CREATE TABLE loads (
	id      INTEGER PRIMARY KEY,
	key     TEXT NOT NULL,
	process INTEGER NOT NULL,
	began   TEXT NOT NULL,
	ended   TEXT -- NULL while it runs, and for ever if its process died
);`

// query stands for the joins and sums of a real slow query. Being one
// statement, it reads the row as it was when the statement began.
const query = `
WITH RECURSIVE work (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM work WHERE i < ?)
SELECT name, version, (SELECT count(*) FROM work) FROM products WHERE key = ?`

const (
	// slowness is how long the query takes at least when nothing else runs:
	// long enough for the processes to meet, short enough to wait for.
	slowness = 50 * time.Millisecond

	now = `strftime('%Y-%m-%d %H:%M:%f', 'now')`
)

// createSource makes a database at path, with one product per key, and finds
// how many rows make the query slow on this machine.
func createSource(ctx context.Context, path string, keys []string) (*source, error) {
	s, err := openSource(ctx, path, 1<<10)
	if err != nil {
		return nil, err
	}
	if err := s.fill(ctx, keys); err != nil {
		s.close()
		return nil, fmt.Errorf("create the source: %w", err)
	}
	return s, nil
}

func (s *source) fill(ctx context.Context, keys []string) error {
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return err
	}
	for _, key := range keys {
		const insert = `INSERT INTO products (key, name, version) VALUES (?, 'a product', 1)`
		if _, err := s.db.ExecContext(ctx, insert, key); err != nil {
			return err
		}
	}
	for ; ; s.rows *= 2 {
		took, err := s.measure(ctx, keys[0])
		if err != nil || took >= slowness {
			return err
		}
	}
}

// measure returns how long the query takes: the shortest of three times, as a
// busy machine may be late with one.
func (s *source) measure(ctx context.Context, key string) (took time.Duration, err error) {
	for i := range 3 {
		began := time.Now()
		if _, err := s.query(ctx, key); err != nil {
			return 0, err
		}
		if d := time.Since(began); i == 0 || d < took {
			took = d
		}
	}
	return took, nil
}

// openSource opens the database at path.
func openSource(ctx context.Context, path string, rows int) (*source, error) {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/...
	}
	uri := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{"_pragma": {
		"busy_timeout(10000)",
		"journal_mode(wal)", // loads do not wait for each other
		"synchronous(off)",  // nobody needs it after a crash of the machine
	}}.Encode()}
	db, err := sql.Open("sqlite3", uri.String())
	if err == nil {
		if err = db.PingContext(ctx); err != nil {
			db.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the source: %w", err)
	}
	return &source{db, rows}, nil
}

func (s *source) close() error { return s.db.Close() }

func (s *source) query(ctx context.Context, key string) (p product, err error) {
	var counted int
	err = s.db.QueryRowContext(ctx, query, s.rows, key).Scan(&p.Name, &p.Version, &counted)
	return p, err
}

// load is the loader of both sides. It logs itself, and calls pause between
// reading the row and its end.
func (s *source) load(ctx context.Context, key string, process int, pause func(context.Context) error) (product, error) {
	const begin = `INSERT INTO loads (key, process, began) VALUES (?, ?, ` + now + `)`
	entry, err := s.db.ExecContext(ctx, begin, key, process)
	if err != nil {
		return product{}, fmt.Errorf("log the load of %s: %w", key, err)
	}
	p, err := s.query(ctx, key)
	if err != nil {
		return product{}, fmt.Errorf("load %s: %w", key, err)
	}
	if err := pause(ctx); err != nil {
		return product{}, fmt.Errorf("load %s: %w", key, err)
	}
	id, err := entry.LastInsertId()
	if err == nil {
		_, err = s.db.ExecContext(ctx, `UPDATE loads SET ended = `+now+` WHERE id = ?`, id)
	}
	if err != nil {
		return product{}, fmt.Errorf("log the end of the load of %s: %w", key, err)
	}
	return p, nil
}

// update changes the product, as its service would, and returns its version.
func (s *source) update(ctx context.Context, key string) (version int, err error) {
	const update = `UPDATE products SET version = version + 1 WHERE key = ? RETURNING version`
	if err := s.db.QueryRowContext(ctx, update, key).Scan(&version); err != nil {
		return 0, fmt.Errorf("update %s: %w", key, err)
	}
	return version, nil
}

// loads returns how many loads of the key have begun.
func (s *source) loads(ctx context.Context, key string) (n int, err error) {
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM loads WHERE key = ?`, key).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the loads of %s: %w", key, err)
	}
	return n, nil
}

// version returns the product's version.
func (s *source) version(ctx context.Context, key string) (n int, err error) {
	if err := s.db.QueryRowContext(ctx, `SELECT version FROM products WHERE key = ?`, key).Scan(&n); err != nil {
		return 0, fmt.Errorf("read the version of %s: %w", key, err)
	}
	return n, nil
}
