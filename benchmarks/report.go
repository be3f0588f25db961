package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// bar is what a figure has to keep to. The zero bar is none.
type bar struct {
	relation string
	limit    float64
}

func atMost(limit float64) bar  { return bar{"≤", limit} }
func atLeast(limit float64) bar { return bar{"≥", limit} }
func exactly(n float64) bar     { return bar{"=", n} }

// passes reports whether value keeps to the bar.
func (b bar) passes(value float64) bool {
	switch b.relation {
	case "≤":
		return value <= b.limit
	case "≥":
		return value >= b.limit
	case "=":
		return value == b.limit
	}
	return true
}

func (b bar) String() string {
	if b == (bar{}) {
		return ""
	}
	return b.relation + " " + strconv.FormatFloat(b.limit, 'f', -1, 64)
}

// unit is what the two sides of a figure are counted in.
type unit string

const (
	nanoseconds  unit = "ns"
	microseconds unit = "µs"
	milliseconds unit = "ms"
	perSecond    unit = "/s"
	allocs       unit = "allocs"
)

func (u unit) format(x float64) string {
	switch u {
	case "":
		return ""
	case microseconds, milliseconds:
		return fmt.Sprintf("%.1f %s", x, u)
	}
	return fmt.Sprintf("%.0f %s", x, u)
}

// figure is one line of the report. Its exported fields are its form in JSON.
type figure struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"` // the median over all runs
	Min   float64  `json:"min"`
	Max   float64  `json:"max"`
	Bar   *float64 `json:"bar,omitempty"`
	OK    *bool    `json:"ok,omitempty"` // whether Value keeps to Bar

	bar          bar
	ours, theirs string
}

func newFigure(p spec, runs []sample) figure {
	var values, ours, theirs []float64
	for _, r := range runs {
		values = append(values, r.value)
		ours = append(ours, r.ours)
		theirs = append(theirs, r.theirs)
	}
	s := summarize(values)
	f := figure{
		Name: p.name, Value: round(s.median), Min: round(s.min), Max: round(s.max), bar: p.bar,
		ours: p.unit.format(median(ours)), theirs: p.unit.format(median(theirs)),
	}
	if p.bar != (bar{}) {
		f.Bar, f.OK = new(p.bar.limit), new(p.bar.passes(f.Value))
	}
	return f
}

func writeJSON(w io.Writer, figures []figure) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Figures []figure `json:"figures"`
	}{figures})
}

func writeTable(w io.Writer, figures []figure) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"Figure", "Median", "Min", "Max", "Bar", "", "leasecache", "beside it"})
	right := func(column int) table.ColumnConfig {
		return table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	t.SetColumnConfigs([]table.ColumnConfig{right(2), right(3), right(4), right(7), right(8)})
	for _, f := range figures {
		verdict := ""
		if f.OK != nil {
			verdict = "ok"
			if !*f.OK {
				verdict = "MISSED"
			}
		}
		t.AppendRow(table.Row{f.Name, number(f.Value), number(f.Min), number(f.Max), f.bar, verdict, f.ours, f.theirs})
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
