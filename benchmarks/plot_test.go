package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAPlotIsWrittenOfEachGroupThatWasMeasured(t *testing.T) {
	dir := t.TempDir()
	figures := append(testFigures(), newFigure(spec{name: "miss/x/ratio", bar: atMost(1.05)}, []sample{{value: 1.2}, {value: 1.3}}))
	if err := plotGroups(dir, figures); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if diff := cmp.Diff([]string{"bench-hit.svg", "bench-miss.svg", "bench-noise.svg"}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	data, err := os.ReadFile(filepath.Join(dir, "bench-hit.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "x/latency_ratio", "leasecache / client alone"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the plot of hits lacks %q", want)
		}
	}
	if strings.Contains(string(data), "extra_allocs") {
		t.Error("the plot of ratios has a figure that is none")
	}
}
