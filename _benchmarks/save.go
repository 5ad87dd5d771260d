package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"time"
)

// A report is what -json writes: the medians of a run.
type report struct {
	Machine machine      `json:"machine"`
	Rounds  int          `json:"rounds"`
	SliceMS int64        `json:"slice_ms"`
	Cells   []cellReport `json:"cells"`
}

type cellReport struct {
	Callers    int               `json:"callers"`
	Keys       int               `json:"keys"`
	Zipf       float64           `json:"zipf,omitempty"`
	Processes  int               `json:"processes,omitempty"`
	Scenario   string            `json:"scenario"`
	LatencyMS  float64           `json:"latency_ms"`
	Cluster    bool              `json:"cluster"`
	OthersCPU  float64           `json:"others_cpu_percent"`
	Contenders []contenderReport `json:"contenders"`
}

// contenderReport has figures by metric. It has ratios only if there is a value to compare with.
type contenderReport struct {
	Name   string             `json:"name"`
	Kind   kind               `json:"kind"`
	Median map[string]float64 `json:"median"`
	ToIncr map[string]float64 `json:"to_incr"`
	ToPeer map[string]float64 `json:"to_best_peer"`
}

// errNoChart is the error of a run that did not measure all cells of the chart.
var errNoChart = errors.New("-svg: the chart needs the cells with 1, 8 and 64 callers, 10,000 keys, all admitted, without latency, and raw INCR")

// save writes the files that -json and -svg name.
func (o *options) save(m machine, results []result) error {
	if o.json != "" {
		text, err := json.MarshalIndent(o.report(m, results), "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.svg == "" {
		return nil
	}
	picture, err := draw(m, results)
	if err != nil {
		return err
	}
	return os.WriteFile(o.svg, []byte(picture), 0o644)
}

func (o *options) report(m machine, results []result) report {
	rep := report{Machine: m, Rounds: o.rounds, SliceMS: o.slice.Milliseconds()}
	for _, r := range results {
		c := cellReport{
			Callers: r.cell.callers, Keys: r.cell.keys, Zipf: r.cell.zipf, Processes: r.cell.processes, Scenario: r.cell.scenario,
			LatencyMS: float64(r.cell.latency) / float64(time.Millisecond), Cluster: r.cell.cluster, OthersCPU: math.Round(r.others),
		}
		for _, s := range r.all {
			c.Contenders = append(c.Contenders, contenderReport{s.name, s.kind, s.value.named(), s.toIncr.named(), s.toPeer.named()})
		}
		rep.Cells = append(rep.Cells, c)
	}
	return rep
}

// named returns the figures by the id of their metric, rounded to four significant digits.
func (f figures) named() map[string]float64 {
	byID := map[string]float64{}
	for i, m := range metrics() {
		if v := f[i]; !math.IsNaN(v) && !math.IsInf(v, 0) {
			byID[m.id] = significant(v)
		}
	}
	return byID
}

// significant rounds to four significant digits, because the measurement is not more accurate.
func significant(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-3)
	if unit < 1 {
		return math.Round(v/unit) / math.Round(1/unit)
	}
	return math.Round(v/unit) * unit
}
