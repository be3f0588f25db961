package main

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheMedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle(t *testing.T) {
	for _, tt := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1, 1, 1e9}, 1},
	} {
		given := slices.Clone(tt.xs)
		if got := median(tt.xs); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", given, got, tt.want)
		}
		if !slices.Equal(tt.xs, given) {
			t.Errorf("median changed %v to %v", given, tt.xs)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestASummaryHasTheMedianAndTheRange(t *testing.T) {
	got := summarize([]float64{1.02, 0.98, 1.5})
	if want := (summary{median: 1.02, min: 0.98, max: 1.5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAComparisonIsOfNeighboursSoThatDriftCancels(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ours, theirs []float64
	}{
		{"the machine becomes ten times slower halfway", []float64{11, 11, 110, 110, 110}, []float64{10, 10, 100, 100, 100}},
		{"a burst of other work hits one block of one side", []float64{11, 900, 110, 110, 110}, []float64{10, 10, 100, 100, 100}},
		{"the machine stands still for a pair", []float64{11, 0, 11, 0}, []float64{10, 0, 10, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := compare(tt.ours, tt.theirs)
			if err != nil || round(got.value) != 1.1 {
				t.Errorf("got %v, %v; want 1.1", got.value, err)
			}
		})
	}
}

func TestAComparisonOfNothingIsAnError(t *testing.T) {
	for _, ours := range []float64{0, 7} {
		if got, err := compare([]float64{ours}, []float64{0}); !errors.Is(err, errStill) {
			t.Errorf("%v against 0: got %v, %v; want errStill", ours, got.value, err)
		}
	}
}

func TestEachSideIsFirstInEverySecondPair(t *testing.T) {
	var order []int
	ours, theirs, err := alternate(3, func(side int) (float64, error) {
		order = append(order, side)
		return float64(len(order)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 1, 1, 0, 0, 1}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]float64{{1, 4, 5}, {2, 3, 6}}, [][]float64{ours, theirs}); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	failure := errors.New("no server")
	if _, _, err := alternate(3, func(int) (float64, error) { return 0, failure }); !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
}

func TestABarIsComparedWithTheFigureAsItIsPrinted(t *testing.T) {
	for _, tt := range []struct {
		bar   bar
		value float64
		want  bool
	}{
		{atMost(1.05), 1.05, true},
		{atMost(1.05), 1.0504, true}, // printed as 1.050
		{atMost(1.05), 1.051, false},
		{atLeast(0.95), 0.95, true},
		{atLeast(0.95), 0.949, false},
		{exactly(1), 1, true},
		{exactly(1), 1.001, false},
		{exactly(1), 0.999, false},
	} {
		if got := tt.bar.passes(round(tt.value)); got != tt.want {
			t.Errorf("%v passes %q = %t, want %t", tt.value, tt.bar, got, tt.want)
		}
	}
}
