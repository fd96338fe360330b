package gateway

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/gateway/inbound"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/gateway/sandboxapi"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstore"
)

// metrics are the gateway's own metrics. No label names an account or a conversation.
type metrics struct {
	calls     *prometheus.CounterVec
	requests  *prometheus.CounterVec
	took      *prometheus.HistogramVec
	dropped   *prometheus.CounterVec
	following *prometheus.GaugeVec
	sockets   prometheus.Gauge
	waiting   prometheus.Gauge
	refused   *prometheus.CounterVec
	received  *prometheus.CounterVec

	executions, evictions *prometheus.CounterVec // of /v1/sandbox, as are those below
	execution, coldStart  prometheus.Histogram
	artifacts             prometheus.Counter
}

func newMetrics(reg *prometheus.Registry, bus *streams.Bus, providers []string, held *web.Holds) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandjet_calls_accepted_total", Help: "Calls admitted at this gateway, by door; repeats of a known call apart.",
		}, []string{"door", "repeat"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandjet_http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sandjet_http_request_seconds", Help: "Time to answer, waiting and streaming included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 120},
		}, []string{"route"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandjet_readers_dropped_total", Help: "Readers whose connection ended in a write: gone, or not reading.",
		}, []string{"transport"}),
		following: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sandjet_conversations_followed", Help: "Conversations that clients follow at this moment.",
		}, []string{"transport"}),
		sockets: prometheus.NewGauge(prometheus.GaugeOpts{Name: "sandjet_sockets", Help: "Open WebSockets."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "sandjet_waiting_requests", Help: "Requests that wait for a result."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sandjet_connections_refused_total", Help: "Connections that were refused, by the limit they met.",
		}, []string{"limit"}),
	}
	m.received = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandjet_chat_messages_received_total", Help: "Verified posts of chat services, by kind of channel and what was done.",
	}, []string{"kind", "done"})
	m.executions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_executions_total", Help: "Requests to /v1/sandbox that ran something, by backend, route and outcome.",
	}, []string{"backend", "tool", "outcome"})
	m.execution = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "sandbox_execution_seconds", Help: "Time from such a request to its answer.", Buckets: prometheus.ExponentialBuckets(0.01, 3, 11),
	})
	m.coldStart = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "sandbox_cold_start_seconds", Help: "Time until the first call of a session that was not active ran.",
		Buckets: prometheus.ExponentialBuckets(0.01, 3, 9),
	})
	m.evictions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sandbox_evictions_total",
		Help: "Sessions that made room for others: idle ones had ended by themselves, max_sessions ones were ended.",
	}, []string{"reason"})
	m.artifacts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sandbox_artifacts_total", Help: "Artifacts in answers of /v1/sandbox.",
	})
	reg.MustRegister(m.executions, m.execution, m.coldStart, m.evictions, m.artifacts)
	reg.MustRegister(m.calls, m.requests, m.took, m.dropped, m.following, m.sockets, m.waiting, m.refused, m.received)
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sandjet_requests_in_hand", Help: "Requests in hand that neither wait nor stream.",
		}, func() float64 { return float64(held.Requests()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sandjet_body_bytes", Help: "Memory that bodies of requests in hand may take.",
		}, func() float64 { return float64(held.BodyBytes()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sandjet_answer_bytes", Help: "Memory of answers and of large events that clients have not read yet.",
		}, func() float64 { return float64(held.Answers.Total()) }),
	)
	if len(providers) > 0 {
		reg.MustRegister(newQueues(providers, bus.Calls().QueueStats))
	}
	return m
}

func (m *metrics) accepted(door string, repeat bool) {
	m.calls.WithLabelValues(door, strconv.FormatBool(repeat)).Inc()
}

// sandboxes returns the metrics of /v1/sandbox. Their names are those that other sandbox services use.
func (m *metrics) sandboxes() sandboxapi.Metrics {
	return sandboxapi.Metrics{
		Executed: func(backend, tool, outcome string, took time.Duration) {
			m.executions.WithLabelValues(backend, tool, outcome).Inc()
			m.execution.Observe(took.Seconds())
		},
		Started:   func(took time.Duration) { m.coldStart.Observe(took.Seconds()) },
		Evicted:   func(reason string) { m.evictions.WithLabelValues(reason).Inc() },
		Artifacts: func(n int) { m.artifacts.Add(float64(n)) },
	}
}

// sessions registers the number of active sessions, as known to this process.
func (*metrics) sessions(reg *prometheus.Registry, active func() int) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sandbox_sessions_active", Help: "Sessions of /v1/sandbox that count for the limits of their accounts.",
	}, func() float64 { return float64(active()) }))
}

func (m *metrics) inbound(kind string, done inbound.Kind) {
	m.received.WithLabelValues(kind, string(done)).Inc()
}

// live returns the metrics of connections.
func (m *metrics) live() live.Metrics {
	return live.Metrics{
		Sockets:   func(more int) { m.sockets.Add(float64(more)) },
		Following: func(transport string, more int) { m.following.WithLabelValues(transport).Add(float64(more)) },
		Dropped:   func(transport string) { m.dropped.WithLabelValues(transport).Inc() },
	}
}

func (m *metrics) request(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(route).Observe(took.Seconds())
}

// queues is a collector that reads the statistics of the call queues when it is scraped, with one round trip per queue; scrapes at the
// same time share them.
type queues struct {
	providers []string
	stats     sharedRead[map[string]callstore.QueueStats]
	age       *prometheus.Desc
	depth     *prometheus.Desc
}

// newQueues returns the collector for the queues of providers. A queue that cannot be read is omitted: no number is better than a wrong
// one.
func newQueues(providers []string, read func(context.Context, string) (callstore.QueueStats, error)) *queues {
	all := func(ctx context.Context) (map[string]callstore.QueueStats, error) {
		stats := map[string]callstore.QueueStats{}
		for _, p := range providers {
			if s, err := read(ctx, p); err == nil {
				stats[p] = s
			}
		}
		return stats, nil
	}
	return &queues{
		providers: providers, stats: sharedRead[map[string]callstore.QueueStats]{within: logPatience, read: all},
		age: prometheus.NewDesc("sandjet_queue_age_seconds",
			"Age of the oldest call that waits for a worker; 0 when none does.", []string{"provider"}, nil),
		depth: prometheus.NewDesc("sandjet_queue_calls",
			"Calls that wait for a worker, and those in the hands of one.", []string{"provider", "state"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (q *queues) Describe(c chan<- *prometheus.Desc) { c <- q.age; c <- q.depth }

// Collect implements [prometheus.Collector].
func (q *queues) Collect(c chan<- prometheus.Metric) {
	stats, _ := q.stats.get(context.Background()) // it never fails
	for _, p := range q.providers {
		s, ok := stats[p]
		if !ok {
			continue
		}
		c <- prometheus.MustNewConstMetric(q.age, prometheus.GaugeValue, s.Oldest.Seconds(), p)
		c <- prometheus.MustNewConstMetric(q.depth, prometheus.GaugeValue, float64(s.Pending+s.Aside), p, "waiting")
		c <- prometheus.MustNewConstMetric(q.depth, prometheus.GaugeValue, float64(s.AckPending), p, "in_hand")
	}
}
