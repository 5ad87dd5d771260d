package otellimit_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redislimit/redislimit/core"
	otellimit "github.com/redislimit/redislimit/otel"
)

// A meter is an OpenTelemetry SDK, from which a test collects the recorded metrics.
type meter struct {
	tb       testing.TB
	reader   *sdkmetric.ManualReader
	provider *sdkmetric.MeterProvider
}

func newMeter(tb testing.TB) *meter {
	tb.Helper()
	reader := sdkmetric.NewManualReader()
	return &meter{tb, reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
}

func (m *meter) observe() core.Option {
	return otellimit.Observe(otellimit.MeterProvider(m.provider))
}

// collected returns the metrics by their names.
func (m *meter) collected() map[string]metricdata.Metrics {
	m.tb.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.WithoutCancel(m.tb.Context()), &all); err != nil {
		m.tb.Fatal(err)
	}
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != "github.com/redislimit/redislimit/otel" {
			m.tb.Errorf("got the scope %q, want the import path of the package", scope.Scope.Name)
		}
		for _, each := range scope.Metrics {
			byName[each.Name] = each
		}
	}
	return byName
}

// series returns the name of one series as "name{attributes}", sorted by attribute, without the prefix "redislimit.".
func series(name string, attributes attribute.Set) string {
	var pairs []string
	for _, kv := range attributes.ToSlice() {
		key := strings.TrimPrefix(string(kv.Key), "redislimit.")
		pairs = append(pairs, key+"="+kv.Value.AsString())
	}
	return strings.TrimPrefix(name, "redislimit.") + "{" + strings.Join(pairs, " ") + "}"
}

// values returns the values of the series of the named metrics, or of all metrics. The value of a histogram is its count.
func (m *meter) values(of ...string) map[string]int64 {
	m.tb.Helper()
	values := map[string]int64{}
	for name, each := range m.collected() {
		if len(of) > 0 && !slices.Contains(of, strings.TrimPrefix(name, "redislimit.")) {
			continue
		}
		switch data := each.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				values[series(name, p.Attributes)] = p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				values[series(name, p.Attributes)] = int64(p.Count)
			}
		default:
			m.tb.Errorf("%s is a %T, want a sum or a histogram", name, data)
		}
	}
	return values
}

// want checks that the named metrics, or all metrics, have exactly these series.
func (m *meter) want(want map[string]int64, of ...string) {
	m.tb.Helper()
	if got := m.values(of...); !maps.Equal(got, want) {
		m.tb.Errorf("got\n%swant\n%s", listed(got), listed(want))
	}
}

// listed returns the series and their values, one a line.
func listed(values map[string]int64) string {
	var lines []string
	for s, v := range values {
		lines = append(lines, fmt.Sprintf("  %s %d\n", s, v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
