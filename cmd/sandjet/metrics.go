package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers"
)

// newRegistry makes the registry of a process, with what Go and the kernel tell about it.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// workerMetrics gives a worker's figures their names in Prometheus.
func workerMetrics(r *prometheus.Registry) workers.Metrics {
	const first, factor, count = 0.001, 2, 20 // 1 ms to 9 min
	buckets := prometheus.ExponentialBuckets(first, factor, count)
	wait := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sandjet_call_wait_seconds", Help: "From the acceptance of a call to its start.", Buckets: buckets,
	}, []string{"tool"})
	run := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sandjet_call_run_seconds", Help: "From the start of a call to its result.", Buckets: buckets,
	}, []string{"tool"})
	finished := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_calls_total", Help: "Results written.",
	}, []string{"tool", "status"})
	redelivered := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sandjet_redeliveries_total", Help: "Calls that came to a worker again.",
	})
	limited := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_limited_total", Help: "Calls that were put back because of a cap.",
	}, []string{"cap"})
	slots := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandjet_slots", Help: "Places for calls, used and allowed.",
	}, []string{"provider", "state"})
	stopped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sandjet_live_stopped_total", Help: "Calls whose live output ended before they did.",
	})
	r.MustRegister(wait, run, finished, redelivered, limited, slots, stopped)
	return workers.Metrics{
		Wait:        func(t schemas.Tool, d time.Duration) { wait.WithLabelValues(string(t)).Observe(d.Seconds()) },
		Run:         func(t schemas.Tool, d time.Duration) { run.WithLabelValues(string(t)).Observe(d.Seconds()) },
		Finished:    func(t schemas.Tool, s schemas.Status) { finished.WithLabelValues(string(t), string(s)).Inc() },
		Redelivered: redelivered.Inc,
		Limited:     func(name string) { limited.WithLabelValues(name).Inc() },
		Slots: func(provider string, used, allowed int) {
			slots.WithLabelValues(provider, "used").Set(float64(used))
			slots.WithLabelValues(provider, "allowed").Set(float64(allowed))
		},
		LiveStopped: stopped.Inc,
	}
}

// serveHealth shows /healthz (the process lives), /readyz (it reaches the log) and /metrics of a process
// without a gateway, until ctx ends.
func serveHealth(r *prometheus.Registry, l net.Listener, ready func(context.Context) error) func(context.Context) error {
	const headerTimeout = 10 * time.Second
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"status":"ok"}`) // the asker has gone
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			http.Error(w, "the log is not reached", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready") // as above
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	return func(ctx context.Context) error {
		srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
		defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return nil
	}
}
