package protocol

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestATokenIs128RandomBitsThatNeverComeBack also looks at each of the bits: one
// that is fixed would be so in all of them.
func TestATokenIs128RandomBitsThatNeverComeBack(t *testing.T) {
	const n = 100_000
	seen := make(map[Token]bool, n)
	var ones [128]int
	for range n {
		tok := NewToken()
		if seen[tok] {
			t.Fatalf("the token %s came twice", tok)
		}
		seen[tok] = true
		bits := unhex(t, string(tok))
		if len(bits) != 16 {
			t.Fatalf("the token %s has %d bits, want 128", tok, 8*len(bits))
		}
		for i := range ones {
			ones[i] += int(bits[i/8]>>(i%8)) & 1
		}
	}
	// Half of them, give or take nine standard deviations.
	for i, got := range ones {
		if got < n/2-1423 || got > n/2+1423 {
			t.Errorf("bit %d is set in %d of %d tokens", i, got, n)
		}
	}
}

// TestTokensComeFromCryptoRand looks at the imports: a token from math/rand would
// pass the test above.
func TestTokensComeFromCryptoRand(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	crypto := false
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		crypto = crypto || strings.Contains(string(source), `"crypto/rand"`)
		if strings.Contains(string(source), `"math/rand`) {
			t.Errorf("%s imports math/rand, which can be guessed", name)
		}
	}
	if !crypto {
		t.Error("no file imports crypto/rand")
	}
}
