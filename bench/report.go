package bench

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Report is the result of a benchmark: rows of figures, with notes that explain them.
type Report struct {
	Title   string   `json:"title"`
	Machine Machine  `json:"machine"`
	Rows    []Row    `json:"rows"`
	Ratios  []Ratio  `json:"ratios,omitzero"`
	Notes   []string `json:"notes,omitzero"`
}

// Machine describes the host of a benchmark.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
	Kernel string `json:"kernel"`
	Load   string `json:"load"` // load average of the last minute, at the start
	User   string `json:"user"` // root or ordinary
}

// Row is one measured quantity.
type Row struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
}

// Ratio is the ratio of two rows, pair by pair if they were measured in pairs.
type Ratio struct {
	Name   string  `json:"name"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
	Aim    string  `json:"aim,omitzero"`
}

func machine() Machine {
	user := "ordinary"
	if os.Geteuid() == 0 {
		user = "root"
	}
	return Machine{
		CPUs: runtime.NumCPU(), Go: runtime.Version(), User: user,
		Kernel: firstField("/proc/sys/kernel/osrelease"), Load: firstField("/proc/loadavg"),
	}
}

func firstField(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return "unknown"
	}
	return f[0]
}

// row summarizes samples. It sorts them.
func row(name, unit string, samples []float64) Row {
	if len(samples) == 0 {
		return Row{Name: name, Unit: unit}
	}
	slices.Sort(samples)
	return Row{
		Name: name, Unit: unit, N: len(samples), Min: samples[0], Median: quantile(samples, 0.5),
		P95: quantile(samples, 0.95), Max: samples[len(samples)-1],
	}
}

// durations summarizes durations in the given unit.
func durations(name string, unit time.Duration, samples []time.Duration) Row {
	f := make([]float64, len(samples))
	for i, d := range samples {
		f[i] = float64(d) / float64(unit)
	}
	label := map[time.Duration]string{time.Microsecond: "µs", time.Millisecond: "ms", time.Second: "s"}[unit]
	return row(name, label, f)
}

// ratio divides pair by pair: a[i] and b[i] were measured one after the other.
func ratio(name, aim string, a, b []float64) Ratio {
	n := min(len(a), len(b))
	q := make([]float64, 0, n)
	for i := range n {
		if b[i] != 0 {
			q = append(q, a[i]/b[i])
		}
	}
	r := row(name, "", q)
	return Ratio{Name: name, Min: r.Min, Median: r.Median, Max: r.Max, Aim: aim}
}

func quantile(sorted []float64, q float64) float64 {
	i := q * float64(len(sorted)-1)
	low := int(i)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (i-float64(low))*(sorted[low+1]-sorted[low])
}

// Write prints the report as Markdown.
func (r Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%d cores, %s, Linux %s, %s user, load %s at the start.\n\n", r.Title,
		r.Machine.CPUs, r.Machine.Go, r.Machine.Kernel, r.Machine.User, r.Machine.Load)
	b.WriteString("| measure | unit | n | min | median | p95 | max |\n|---|---|---:|---:|---:|---:|---:|\n")
	for _, x := range r.Rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %s | **%s** | %s | %s |\n", x.Name, x.Unit, x.N, figure(x.Min),
			figure(x.Median), figure(x.P95), figure(x.Max))
	}
	if len(r.Ratios) > 0 {
		b.WriteString("\n| ratio, pair by pair | min | median | max | aim |\n|---|---:|---:|---:|---|\n")
		for _, x := range r.Ratios {
			fmt.Fprintf(&b, "| %s | %.2f | **%.2f** | %.2f | %s |\n", x.Name, x.Min, x.Median, x.Max, x.Aim)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// figure formats a number with about three significant digits.
func figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}
