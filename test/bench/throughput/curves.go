package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"text/template"
)

// scale places a value between 0, at the bottom of a chart, and 1.
type scale struct {
	place func(float64) float64
	ticks []float64
}

// linear begins at 0.
func linear(top float64) scale {
	step := math.Pow(10, math.Floor(math.Log10(top)))
	for _, part := range []float64{0.1, 0.2, 0.5} {
		if top/(step*part) <= 6 {
			step *= part
			break
		}
	}
	s := scale{}
	end := math.Ceil(top/step) * step
	for i := 0; float64(i)*step <= end+step/2; i++ {
		s.ticks = append(s.ticks, float64(i)*step)
	}
	s.place = func(v float64) float64 { return v / end }
	return s
}

// logarithmic has powers of ten.
func logarithmic(bottom, top float64) scale {
	from, to := math.Floor(math.Log10(bottom)), math.Ceil(math.Log10(top))
	if from == to {
		to++
	}
	s := scale{place: func(v float64) float64 { return (math.Log10(v) - from) / (to - from) }}
	for e := from; e <= to; e++ {
		s.ticks = append(s.ticks, math.Pow(10, e))
	}
	return s
}

// curve is one line of a chart: a spread for each place on the x axis.
type curve struct {
	name   string
	points []spread
}

// chart is drawn as SVG.
type chart struct {
	title, x, y string
	places      []string
	curves      []curve
	scale       func(bottom, top float64) scale
}

// Sizes in pixels. The legend is to the right of the plot.
const (
	chartWidth, chartHeight = 760, 360
	plotLeft, plotTop       = 64, 48
	plotWidth, plotHeight   = 480, 250
	lineHeight              = 20
)

// drawn is a chart as the template wants it: everything has its place.
type drawn struct {
	Width, Height, Left, Top, Right, Bottom int
	Title, X, Y                             string
	Rows                                    []label
	Columns                                 []label
	Lines                                   []drawnLine
}

type label struct {
	At   float64
	Text string
}

type drawnLine struct {
	Class int
	// Light and Dark are its colours where the page is light, and where it is dark.
	Light, Dark string
	Name        string
	LegendY     int
	Path        string
	Dots        []dot
}

type dot struct{ X, Y, Low, High float64 }

var picture = template.Must(template.New("chart").Funcs(template.FuncMap{"add": func(a, b int) int { return a + b }}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" role="img" aria-label="{{.Title}}">
<style>
text { font: 12px sans-serif; fill: #1f2328 }
.back { fill: #ffffff }
.title { font-size: 15px; font-weight: 600 }
.end { text-anchor: end }
.middle { text-anchor: middle }
.grid { stroke: #d1d9e0 }
.line { fill: none; stroke-width: 2 }
{{- range .Lines}}
.c{{.Class}} { stroke: {{.Light}} } .f{{.Class}} { fill: {{.Light}} }
{{- end}}
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.back { fill: #0d1117 }
.grid { stroke: #3d444d }
{{- range .Lines}}
.c{{.Class}} { stroke: {{.Dark}} } .f{{.Class}} { fill: {{.Dark}} }
{{- end}}
}
</style>
<rect class="back" width="{{.Width}}" height="{{.Height}}"/>
<text class="title" x="{{.Left}}" y="24">{{.Title}}</text>
<text x="{{.Left}}" y="{{add .Top -8}}">{{.Y}}</text>
<text class="end" x="{{.Right}}" y="{{add .Bottom 40}}">{{.X}}</text>
{{- range .Rows}}
<line class="grid" x1="{{$.Left}}" x2="{{$.Right}}" y1="{{printf "%.1f" .At}}" y2="{{printf "%.1f" .At}}"/><text class="end" x="{{add $.Left -8}}" y="{{printf "%.1f" .At}}" dy="4">{{.Text}}</text>
{{- end}}
{{- range .Columns}}
<text class="middle" x="{{printf "%.1f" .At}}" y="{{add $.Bottom 20}}">{{.Text}}</text>
{{- end}}
{{- range .Lines}}{{$class := .Class}}
<path class="line c{{.Class}}" d="{{.Path}}"/>
{{- range .Dots}}
<line class="c{{$class}}" x1="{{printf "%.1f" .X}}" x2="{{printf "%.1f" .X}}" y1="{{printf "%.1f" .Low}}" y2="{{printf "%.1f" .High}}"/><circle class="f{{$class}}" cx="{{printf "%.1f" .X}}" cy="{{printf "%.1f" .Y}}" r="3.5"/>
{{- end}}
<line class="line c{{.Class}}" x1="{{add $.Right 20}}" x2="{{add $.Right 40}}" y1="{{.LegendY}}" y2="{{.LegendY}}"/><text x="{{add $.Right 48}}" y="{{.LegendY}}" dy="4">{{.Name}}</text>
{{- end}}
</svg>
`))

// colours of curves, on light and on dark.
var colours = [][2]string{{"#57606a", "#9198a1"}, {"#0550ae", "#58a6ff"}, {"#bc4c00", "#f0883e"}, {"#116329", "#3fb950"}, {"#8250df", "#bc8cff"}, {"#a40e26", "#ff7b72"}}

// svg draws the chart. Dots are means, and bars reach from the least to the most that was measured.
func (c chart) svg() ([]byte, error) {
	if len(c.curves) > len(colours) {
		return nil, fmt.Errorf("%s: there are %d curves, and colours for %d", c.title, len(c.curves), len(colours))
	}
	var all []float64
	for _, curve := range c.curves {
		if len(curve.points) != len(c.places) {
			return nil, fmt.Errorf("%s: %s has %d points for %d places", c.title, curve.name, len(curve.points), len(c.places))
		}
		for i, p := range curve.points {
			if p.N == 0 {
				return nil, fmt.Errorf("%s: %s was not measured for %s", c.title, curve.name, c.places[i])
			}
			all = append(all, p.Min, p.Max)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: there is nothing to draw", c.title)
	}
	s := c.scale(slices.Min(all), slices.Max(all))
	y := func(v float64) float64 { return plotTop + plotHeight*(1-s.place(v)) }
	x := func(i int) float64 { return plotLeft + plotWidth*(float64(i)+0.5)/float64(len(c.places)) }
	d := drawn{
		Width: chartWidth, Height: chartHeight, Left: plotLeft, Top: plotTop, Right: plotLeft + plotWidth, Bottom: plotTop + plotHeight,
		Title: c.title, X: c.x, Y: c.y,
	}
	for _, v := range s.ticks {
		d.Rows = append(d.Rows, label{At: y(v), Text: fmt.Sprintf("%g", v)})
	}
	for i, place := range c.places {
		d.Columns = append(d.Columns, label{At: x(i), Text: place})
	}
	for n, curve := range c.curves {
		line := drawnLine{Class: n, Light: colours[n][0], Dark: colours[n][1], Name: curve.name, LegendY: plotTop + 10 + n*lineHeight}
		for i, p := range curve.points {
			command := "L"
			if i == 0 {
				command = "M"
			}
			line.Path += fmt.Sprintf("%s%.1f %.1f", command, x(i), y(p.Mean))
			line.Dots = append(line.Dots, dot{X: x(i), Y: y(p.Mean), Low: y(p.Min), High: y(p.Max)})
		}
		d.Lines = append(d.Lines, line)
	}
	var b bytes.Buffer
	err := picture.Execute(&b, d)
	return b.Bytes(), err
}

// charts of a run's first operator.
func (r *result) charts() map[string]chart {
	operator, least := r.Operators[0].Name, r.leastExisting()
	_, all := groups(r.Blocks)
	var clients, existing []int
	for _, b := range r.Blocks {
		clients, existing = append(clients, b.Clients), append(existing, b.Existing)
	}
	clients, existing = distinct(clients), distinct(existing)
	byClients := func(name, load string, of func(block) float64) curve {
		c := curve{name: name}
		for _, n := range clients {
			c.points = append(c.points, across(all[group{operator: operator, existing: least, load: load, clients: n}], of))
		}
		return c
	}
	perSecond := func(b block) float64 { return b.PerSecond }
	whole50 := func(b block) float64 { return b.Whole.P50 }
	charts := map[string]chart{
		"throughput": {
			title: "How many in a second", x: "clients", y: "per second", places: texts(clients), scale: logarithmic,
			curves: []curve{byClients("raw creates", floorLoad, perSecond), byClients("actions, allowed", allowLoad, perSecond), byClients("actions, approved", approveLoad, perSecond)},
		},
		"latency": {
			title: "How long it takes", x: "clients", y: "milliseconds", places: texts(clients), scale: logarithmic,
			curves: []curve{
				byClients("raw create, p50", floorLoad, whole50),
				byClients("allowed, to admission, p50", allowLoad, func(b block) float64 { return b.Admitted.P50 }),
				byClients("allowed, to admission, p99", allowLoad, func(b block) float64 { return b.Admitted.P99 }),
				byClients("allowed, to receipt, p50", allowLoad, whole50),
				byClients("approved, to receipt, p50", approveLoad, whole50),
			},
		},
	}
	if len(existing) > 1 {
		c := chart{
			title: "Allowed actions in a second, by what exists", x: "finished actions before", y: "per second", places: texts(existing),
			scale: func(_, top float64) scale { return linear(top) },
		}
		for _, n := range clients {
			line := curve{name: fmt.Sprintf("agents: %d", n)}
			for _, e := range existing {
				line.points = append(line.points, across(all[group{operator: operator, existing: e, load: allowLoad, clients: n}], perSecond))
			}
			c.curves = append(c.curves, line)
		}
		charts["existing"] = c
	}
	return charts
}

func distinct(all []int) []int { return slices.Compact(slices.Sorted(slices.Values(all))) }

func texts(numbers []int) []string {
	var all []string
	for _, n := range numbers {
		all = append(all, fmt.Sprint(n))
	}
	return all
}
