package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testFigures() []figure {
	return []figure{
		newFigure(spec{name: "hit/x/latency_ratio", bar: atMost(1.05), unit: microseconds},
			[]sample{{1.03, 30, 29}, {1.0101, 32, 31}, {1.08, 31, 30}}),
		newFigure(spec{name: "hit/x/extra_allocs", bar: atMost(3)}, []sample{{value: 4}}),
		newFigure(spec{name: "aa/x/latency_ratio", unit: microseconds}, []sample{{1, 29, 29}}),
	}
}

func TestTheJSONHasABarAndAVerdictOnlyWhereThereIsABar(t *testing.T) {
	var b strings.Builder
	if err := writeJSON(&b, testFigures()); err != nil {
		t.Fatal(err)
	}
	want := `{
  "figures": [
    {
      "name": "hit/x/latency_ratio",
      "value": 1.03,
      "min": 1.01,
      "max": 1.08,
      "bar": 1.05,
      "ok": true
    },
    {
      "name": "hit/x/extra_allocs",
      "value": 4,
      "min": 4,
      "max": 4,
      "bar": 3,
      "ok": false
    },
    {
      "name": "aa/x/latency_ratio",
      "value": 1,
      "min": 1,
      "max": 1
    }
  ]
}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestTheTableSaysWhichBarsAreMissed(t *testing.T) {
	var b strings.Builder
	if err := writeTable(&b, testFigures()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hit/x/latency_ratio", "≤ 1.05", "MISSED", "31.0 µs", "30.0 µs"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &b)
		}
	}
	if n := strings.Count(b.String(), "MISSED"); n != 1 {
		t.Errorf("the table has MISSED %d times, want once:\n%s", n, &b)
	}
}
