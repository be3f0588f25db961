package main

import (
	"errors"
	"math"
	"slices"
)

// sample is what one run of a probe found.
type sample struct {
	value        float64 // the figure
	ours, theirs float64 // the two sides of it, in the probe's unit; both 0 if there are none
}

// summary is what several runs found.
type summary struct {
	median, min, max float64
}

// median returns the middle of xs, or the mean of the two in the middle, and NaN if there are none. A burst of other work
// on the machine moves a mean, but not a median.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	xs = slices.Sorted(slices.Values(xs))
	mid := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[mid]
	}
	return (xs[mid-1] + xs[mid]) / 2
}

// summarize returns median and range of xs, of which there must be at least one.
func summarize(xs []float64) summary {
	return summary{median: median(xs), min: slices.Min(xs), max: slices.Max(xs)}
}

// ratios compares two series element by element. What is next to each other in time met the same machine, so slow drift
// cancels out of each ratio. A pair in which nothing was done on either side, because the machine stood still, says nothing.
func ratios(ours, theirs []float64) []float64 {
	var rs []float64
	for i := range ours {
		if ours[i] != 0 || theirs[i] != 0 {
			rs = append(rs, ours[i]/theirs[i])
		}
	}
	return rs
}

// compare returns the sample of two series that were measured in turn.
func compare(ours, theirs []float64) (sample, error) {
	s := sample{value: median(ratios(ours, theirs)), ours: median(ours), theirs: median(theirs)}
	if math.IsNaN(s.value) || math.IsInf(s.value, 0) {
		return sample{}, errStill
	}
	return s, nil
}

// errStill ends a comparison in which one side did nothing most of the time.
var errStill = errors.New("no operation ended in most turns: the machine is too busy to measure anything")

// round cuts x to the three decimals that are printed, so that a figure and its verdict never contradict each other. Adding
// 0 makes a positive zero of a negative one.
func round(x float64) float64 { return math.Round(x*1000)/1000 + 0 }
