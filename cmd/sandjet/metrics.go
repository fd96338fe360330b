package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/chat"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// newRegistry returns the registry of a process, with the metrics of the Go runtime and of the process.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// clockMetric exports how far the clock of this process is ahead of the log's.
func clockMetric(b *streams.Bus) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sandjet_clock_ahead_seconds", Help: "By how much the clock of this process is ahead of the log's, whose time is used.",
	}, func() float64 { return b.ClockOff().Seconds() })
}

// workerMetrics registers the metrics of workers and returns the functions that record them.
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
	looked := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sandjet_call_looks_total", Help: "Reads of a conversation before a worker decided about a call.",
	})
	stuck := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandjet_stuck_runs",
		Help: "Runs that did not end at their time and were left to themselves. Restart the worker when it stays above 0.",
	}, []string{"provider"})
	started := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_jobs_started_total", Help: "Background jobs that were started.",
	}, []string{"provider"})
	jobs := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandjet_jobs", Help: "Background jobs that the worker manages.",
	}, []string{"provider"})
	boxes := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandjet_boxes", Help: "Persistent instances that the worker knows of.",
	}, []string{"provider"})
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_boxes_ended_total", Help: "Persistent instances that the worker has released.",
	}, []string{"provider", "why"})
	r.MustRegister(wait, run, finished, redelivered, limited, slots, stopped, looked, stuck, started, jobs, boxes, ended)
	return workers.Metrics{
		Wait:        func(t schemas.Tool, d time.Duration) { wait.WithLabelValues(string(t)).Observe(d.Seconds()) },
		Run:         func(t schemas.Tool, d time.Duration) { run.WithLabelValues(string(t)).Observe(d.Seconds()) },
		Finished:    func(t schemas.Tool, s schemas.Status) { finished.WithLabelValues(toolLabel(t), string(s)).Inc() },
		Redelivered: redelivered.Inc,
		Limited:     func(name string) { limited.WithLabelValues(name).Inc() },
		Slots: func(provider string, used, allowed int) {
			slots.WithLabelValues(provider, "used").Set(float64(used))
			slots.WithLabelValues(provider, "allowed").Set(float64(allowed))
		},
		LiveStopped: stopped.Inc,
		Looked:      looked.Inc,
		Stuck:       func(provider string, n int) { stuck.WithLabelValues(provider).Set(float64(n)) },
		JobStarted:  func(provider string) { started.WithLabelValues(provider).Inc() },
		Jobs:        func(provider string, n int) { jobs.WithLabelValues(provider).Set(float64(n)) },
		Boxes:       func(provider string, n int) { boxes.WithLabelValues(provider).Set(float64(n)) },
		BoxEnded:    func(provider, why string) { ended.WithLabelValues(provider, why).Inc() },
	}
}

// failures registers the count of housekeepers' failures and returns the function that records one.
func failures(r *prometheus.Registry) func(name string) {
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_housekeeper_failures_total", Help: "Housekeepers that failed and were started again.",
	}, []string{"housekeeper"})
	r.MustRegister(failed)
	return func(name string) { failed.WithLabelValues(name).Inc() }
}

// settlerMetrics registers the metrics of a settler and returns the functions that record them.
func settlerMetrics(r *prometheus.Registry) maintenance.SettlerMetrics {
	const first, factor, count = 0.001, 2, 20 // 1 ms to 9 min
	settled := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_jobs_settled_total", Help: "Ends of background jobs that were settled.",
	}, []string{"state", "via"})
	lag := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "sandjet_job_settle_seconds", Help: "From the report of a job's end to its settlement.",
		Buckets: prometheus.ExponentialBuckets(first, factor, count),
	})
	followups := prometheus.NewCounter(prometheus.CounterOpts{Name: "sandjet_followups_total", Help: "Follow-ups made."})
	results := prometheus.NewCounter(prometheus.CounterOpts{Name: "sandjet_followup_results_total", Help: "Results in follow-ups."})
	r.MustRegister(settled, lag, followups, results)
	return maintenance.SettlerMetrics{
		Settled: func(s schemas.JobState, v schemas.ReportedBy, after time.Duration) {
			settled.WithLabelValues(string(s), string(v)).Inc()
			lag.Observe(after.Seconds())
		},
		Followed: func(n int) {
			followups.Inc()
			results.Add(float64(n))
		},
	}
}

// deliveryMetrics registers the metrics of deliverers and returns the functions that record them.
func deliveryMetrics(r *prometheus.Registry) delivery.Metrics {
	const first, factor, count = 0.001, 2, 15       // 1 ms to 16 s
	const long, longFactor, longCount = 0.01, 4, 13 // 10 ms to 2 days
	tries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_delivery_tries_total", Help: "Tries of deliveries.",
	}, []string{"channel", "outcome"})
	try := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sandjet_delivery_try_seconds", Help: "Duration of a try.", Buckets: prometheus.ExponentialBuckets(first, factor, count),
	}, []string{"channel"})
	delivered := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sandjet_delivery_seconds", Help: "From the making of a delivery to its arrival.",
		Buckets: prometheus.ExponentialBuckets(long, longFactor, longCount),
	}, []string{"channel"})
	dead := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_deliveries_dead_total", Help: "Deliveries that were abandoned.",
	}, []string{"channel"})
	r.MustRegister(tries, try, delivered, dead)
	return delivery.Metrics{
		Tried: func(channel string, k delivery.Kind, took time.Duration) {
			tries.WithLabelValues(channel, string(k)).Inc()
			try.WithLabelValues(channel).Observe(took.Seconds())
		},
		Delivered: func(channel string, after time.Duration) { delivered.WithLabelValues(channel).Observe(after.Seconds()) },
		Dead:      func(channel string) { dead.WithLabelValues(channel).Inc() },
	}
}

// chatMetrics registers the metrics of messages to chats and returns the functions that record them.
func chatMetrics(r *prometheus.Registry) chat.Metrics {
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_chat_messages_total",
		Help: "Requests to chat services that carry a message, by what came of them; found: it was there already.",
	}, []string{"channel", "outcome"})
	repeated := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_chat_repeats_total", Help: "Messages that say that they may be repeats.",
	}, []string{"channel"})
	r.MustRegister(sent, repeated)
	return chat.Metrics{
		Sent:     func(kind, outcome string) { sent.WithLabelValues(kind, outcome).Inc() },
		Repeated: func(kind string) { repeated.WithLabelValues(kind).Inc() },
	}
}

// chatFileMetrics registers the count of files in messages and returns the function that records one.
func chatFileMetrics(r *prometheus.Registry) func(kind, outcome string) {
	files := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_chat_files_total", Help: "Files that came with messages of chats: stored in a workspace, or refused.",
	}, []string{"channel", "outcome"})
	r.MustRegister(files)
	return func(kind, outcome string) { files.WithLabelValues(kind, outcome).Inc() }
}

// serveHealth returns a function that serves /healthz (the process lives), /readyz (it reaches the log) and /metrics until ctx ends, for a
// process without a gateway. It runs when the process is built: until then n.bus is nil.
func (n *node) serveHealth(l net.Listener) func(context.Context) error {
	const timeout, most = 10 * time.Second, 64
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"status":"ok"}`) // the client may have disconnected
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := n.bus.Ready(r.Context()); err != nil {
			http.Error(w, "the log is not reachable, or cannot write: "+schemas.Public(err).Message, http.StatusServiceUnavailable)
			return
		}
		words := []string{"ready"}
		if clock := n.bus.ClockWarning(); clock != "" {
			words = append(words, clock)
		}
		if n.disk != nil && n.disk() != "" {
			words = append(words, n.disk())
		}
		fmt.Fprintln(w, strings.Join(words, ": ")) // as above
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics, promhttp.HandlerOpts{}))
	return func(ctx context.Context) error {
		srv := &http.Server{Handler: mux, ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: time.Minute}
		l := web.LimitConnections(l, web.Connections{All: most, PerAddress: most})
		defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return nil
	}
}

// toolLabel returns a tool's label in metrics. Unknown tools share one, because models invent names and each label stays in memory as long
// as the process lives.
func toolLabel(t schemas.Tool) string {
	if !slices.Contains(schemas.Tools(), t) {
		return "unknown"
	}
	return string(t)
}
