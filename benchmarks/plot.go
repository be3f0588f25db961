package main

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plots are the pictures, of the figures of a group that share a scale.
var plots = []struct {
	name, title, axis string
	figures           *regexp.Regexp
}{
	{"hit", "A hit beside a GET by the same client", "leasecache / client alone", regexp.MustCompile(`^hit/[^/]*/(latency|throughput|json)_ratio$`)},
	{"miss", "A miss beside the same three round trips", "leasecache / client alone", regexp.MustCompile(`^miss/`)},
	{"hotkey", "64 readers of one key that share reads, beside 64 that do not", "leasecache / client alone, operations a second", regexp.MustCompile(`^hotkey/`)},
	{"large", "A hit of a large value beside a GET by the same client", "leasecache / client alone", regexp.MustCompile(`^large/.*_ratio$`)},
	{"batch", "100 hits at once beside a pipeline of 100 GETs", "leasecache / client alone", regexp.MustCompile(`^batch/`)},
	{"near", "A hit in memory beside one of the client's own", "leasecache / client alone", regexp.MustCompile(`^near/.*_ratio$`)},
	{"wake", "20 processes wait for one load: when the last of 1,000 readers has it", "milliseconds after the load", regexp.MustCompile(`^wake/.*_ms$`)},
	{"peers", "A hit beside other caches", "leasecache / peer", regexp.MustCompile(`^peer/.*/hit_ratio$`)},
	{"peers-loads", "Loads of one key that 20 instances want at once", "loads", regexp.MustCompile(`^peer/.*/stampede_loads$`)},
	{"noise", "A GET beside the same GET", "first / second", regexp.MustCompile(`^aa/`)},
}

const plotMargin = 8 // points, around a plot

var (
	colorFigure = color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}
	colorBar    = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	colorGrid   = color.RGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

// plotGroups writes a plot of each group that was measured to dir.
func plotGroups(dir string, figures []figure) error {
	for _, g := range plots {
		var in []figure
		for _, f := range figures {
			if g.figures.MatchString(f.Name) {
				in = append(in, f)
			}
		}
		if len(in) == 0 {
			continue
		}
		if err := plotFigures(filepath.Join(dir, "bench-"+g.name+".svg"), g.title, g.axis, in); err != nil {
			return err
		}
	}
	return nil
}

// points are figures from top to bottom: a dot for the median, and a line from the least to the most.
type points []figure

func (ps points) Len() int { return len(ps) }

func (ps points) XY(i int) (x, y float64) { return ps[i].Value, float64(len(ps) - 1 - i) }

func (ps points) XError(i int) (low, high float64) {
	return ps[i].Value - ps[i].Min, ps[i].Max - ps[i].Value
}

func plotFigures(file, title, axis string, figures []figure) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, axis+"\ndot: median, line: least to most, red: bar"
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = colorGrid, nil
	p.Add(grid)

	dots, err := plotter.NewScatter(points(figures))
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: colorFigure, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
	ranges, err := plotter.NewXErrorBars(points(figures))
	if err != nil {
		return err
	}
	ranges.Color, ranges.Width = colorFigure, vg.Points(1.2)
	p.Add(ranges, dots)

	labels := make([]string, len(figures))
	for i, f := range figures {
		_, y := points(figures).XY(i)
		_, rest, _ := strings.Cut(f.Name, "/")
		labels[int(y)] = rest
		if f.Bar == nil {
			continue
		}
		bar, err := plotter.NewLine(plotter.XYs{{X: *f.Bar, Y: y - 0.35}, {X: *f.Bar, Y: y + 0.35}})
		if err != nil {
			return err
		}
		bar.Color, bar.Width = colorBar, vg.Points(1.5)
		p.Add(bar)
	}
	p.NominalY(labels...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(figures))-0.4
	margin := (p.X.Max - p.X.Min) / 40
	p.X.Min, p.X.Max = p.X.Min-margin, p.X.Max+margin

	svg := vgsvg.New(16*vg.Centimeter, vg.Length(len(figures))*0.6*vg.Centimeter+3*vg.Centimeter)
	c := draw.New(svg)
	c.SetColor(color.White) // whatever the page has behind it
	c.Fill(c.Path())
	p.Draw(draw.Crop(c, plotMargin, -plotMargin, plotMargin, -plotMargin))
	var b bytes.Buffer
	if _, err := svg.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
