package main

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	prefix    = "leasecache-bench:"
	valueSize = 512
	ttl       = time.Hour
)

// product is what the JSON cache holds. With this content it is encoded in valueSize bytes.
type product struct {
	ID          int64    `json:"id"`
	Name        string   `json:"name"`
	Price       float64  `json:"price"`
	InStock     bool     `json:"in_stock"`
	Tags        []string `json:"tags"`
	Description string   `json:"description"`
}

func newProduct() (product, error) {
	p := product{
		ID: 42, Name: "Espresso machine", Price: 349.5, InStock: true, Tags: []string{"kitchen", "coffee", "offer"},
	}
	data, err := json.Marshal(p)
	p.Description = strings.Repeat("A ", valueSize)[:valueSize-len(data)]
	return p, err
}

// newBytes returns a value of n raw bytes, the same in every run.
func newBytes(n int) []byte {
	value := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(1 + r.IntN(255)) // a first byte of 0 would be stored as two
	}
	return value
}
