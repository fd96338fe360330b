package maintenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// maxFollowUpLogs is the maximal size of the output in all results of a follow-up together, in bytes. Each result gets at least an
	// even share, and what the others leave of theirs.
	maxFollowUpLogs = 192 << 10
	// maxFollowUpArtifacts is the same limit for the JSON lists of their artifacts, without the counts of those that are left out.
	maxFollowUpArtifacts = 64 << 10
)

// Endpoints returns an account's webhook endpoints. It is called for every settled job, so List should be fast. Codes: unavailable.
type Endpoints interface {
	List(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error)
}

// followUps publishes the consequences of settled jobs. All its methods are idempotent.
type followUps struct {
	bus       *streams.Bus
	endpoints Endpoints
	log       *slog.Logger
	followed  func(results int)
	at        func(SettleStage) error
}

func newFollowUps(b *streams.Bus, e Endpoints, log *slog.Logger) *followUps {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &followUps{bus: b, endpoints: e, log: log, followed: func(int) {}, at: func(SettleStage) error { return nil }}
}

// receivers returns the webhook endpoints of an account.
func (h *followUps) receivers(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error) {
	if h.endpoints == nil {
		return nil, nil
	}
	list, err := h.endpoints.List(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("look up the webhook endpoints: %w", err)
	}
	return list, nil
}

// publish stores an event and creates its deliveries to the receivers.
func (h *followUps) publish(ctx context.Context, e schemas.Event, absent streams.Absence, receivers []schemas.Endpoint) error {
	at, err := streams.StoreOnce(ctx, h.bus, e, absent)
	if err != nil {
		return fmt.Errorf("publish %s: %w", e.Type, err)
	}
	if err := h.at(settlePublished); err != nil {
		return err
	}
	return lifecycle.Notify(ctx, h.bus, e, at, receivers)
}

// handOn passes a follow-up to its recipient: the agent's turn that waits for it, or else the chat channel from which the conversation
// came. In any case it is published on the conversation and delivered to the webhooks.
func (h *followUps) handOn(ctx context.Context, f schemas.FollowUp, absent streams.Absence, receivers []schemas.Endpoint) error {
	e := followUpEvent(f)
	switch {
	case f.Turn != "":
		if err := streams.Turns.Publish(ctx, h.bus, f); err != nil && !errors.Is(err, schemas.ErrConflict) {
			return fmt.Errorf("continue the turn: %w", err)
		}
	case f.Origin != nil && f.Origin.Kind == schemas.OriginChannel:
		err := lifecycle.Deliver(ctx, h.bus, channelDelivery(f, e))
		if schemas.CodeOf(err) == schemas.Invalid { // an invalid channel; the conversation still gets the event
			h.log.Warn("follow-up has no valid channel", "follow_up", f.ID, "channel", f.Origin.Channel, "error", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	if err := h.at(settleHanded); err != nil {
		return err
	}
	if err := h.publish(ctx, e, absent, receivers); err != nil {
		return err
	}
	h.followed(len(f.Results))
	return nil
}

// channelDelivery returns the delivery of a follow-up to the chat channel from which the conversation came.
func channelDelivery(f schemas.FollowUp, e schemas.Event) schemas.Delivery {
	body, _ := json.Marshal(f) //nolint:errchkjson // its only raw member, the route, was decoded from JSON
	return schemas.Delivery{
		ID: schemas.MakeDeliveryID(e.ID, "channel:"+f.Origin.Channel), Account: f.Account, Channel: f.Origin.Channel,
		ChannelID: f.Origin.ChannelID,
		Route:     f.Origin.Route,
		Event:     e.ID, Type: e.Type, Conversation: f.Conversation, Body: string(body), Created: f.Created,
	}
}

// followUpEvent returns the event of a follow-up on its conversation. Its subject is the turn that continues, or the job.
func followUpEvent(f schemas.FollowUp) schemas.Event {
	about := schemas.Job{Account: f.Account, Conversation: f.Conversation, ID: f.Results[0].Job}
	e := schemas.NewJobEvent(about, schemas.FollowUpCreated, schemas.FollowUpEventID(f.Account, f.ID), f.Created, f)
	if f.Turn != "" {
		e.Subject = string(f.Turn)
	}
	return e
}

// jobFollowUp returns the follow-up of a single job.
func jobFollowUp(j schemas.Job) schemas.FollowUp {
	return worded(schemas.FollowUp{
		ID: schemas.MakeFollowUpID(j.Account, "", j.ID), Account: j.Account, Conversation: j.Conversation, Agent: j.Agent, Turn: j.Turn,
		Origin: j.Origin, Results: []schemas.JobResult{schemas.JobResultOf(j, *j.Completion)}, Created: j.Completion.Finished,
	})
}

// groupFollowUp returns the follow-up of a group.
func groupFollowUp(g schemas.Group, results []schemas.JobResult, at time.Time) schemas.FollowUp {
	return worded(schemas.FollowUp{
		ID: schemas.MakeFollowUpID(g.Account, g.ID, ""), Account: g.Account, Conversation: g.Conversation, Agent: g.Agent, Turn: g.Turn,
		Group: g.ID, Origin: g.Origin, Results: results, Missing: g.Missing, Created: at,
	})
}

// worded limits the output and artifacts in the results of a follow-up, and sets its text.
func worded(f schemas.FollowUp) schemas.FollowUp {
	sizes, listed := make([]int, len(f.Results)), make([]int, len(f.Results))
	for i, r := range f.Results {
		sizes[i], listed[i] = len(r.Logs), r.ListSize()
	}
	f.Results = slices.Clone(f.Results)
	for i, most := range shares(listed, maxFollowUpArtifacts) {
		if most < listed[i] {
			f.Results[i].JobArtifacts = f.Results[i].Within(most)
		}
	}
	for i, most := range shares(sizes, maxFollowUpLogs) {
		if r := &f.Results[i]; len(r.Logs) > most {
			r.Logs, r.LogTruncated = schemas.TailText(r.Logs, most), true
		}
	}
	f.Text = followUpText(f.Results, f.Missing)
	return f
}

// shares divides total among consumers: all get the same, except that none gets more than it wants, and the rest is shared by the others.
func shares(wanted []int, total int) []int {
	order := make([]int, len(wanted))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return wanted[a] - wanted[b] })
	given := make([]int, len(wanted))
	for n, i := range order {
		given[i] = min(wanted[i], total/(len(order)-n))
		total -= given[i]
	}
	return given
}

// followUpText describes to a model how its background jobs ended, in one paragraph for each.
func followUpText(results []schemas.JobResult, missing int) string {
	parts := make([]string, 0, len(results)+1)
	for _, r := range results {
		parts = append(parts, resultText(r))
	}
	switch {
	case missing == 1:
		parts = append(parts, "Another call of this group has no result yet. It is not waited for any more: if it ends, you will be told.")
	case missing > 1:
		parts = append(parts, strconv.Itoa(missing)+
			" more calls of this group have no result yet. They are not waited for any more: as they end, you will be told.")
	}
	return strings.Join(parts, "\n\n")
}

func resultText(r schemas.JobResult) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Background job %s (%s) %s", r.Job, r.Tool, howItEnded(r))
	b.WriteString(".")
	if r.Reason != "" {
		fmt.Fprintf(&b, " Reason: %s.", strings.TrimSuffix(strings.TrimSpace(r.Reason), "."))
	}
	if r.OOMKilled {
		b.WriteString(" It was killed because it used more memory than it may.")
	}
	switch {
	case r.ChildrenLeft == 1:
		b.WriteString(" A process that it left behind was ended.")
	case r.ChildrenLeft > 1:
		fmt.Fprintf(&b, " %d processes that it left behind were ended.", r.ChildrenLeft)
	}
	if r.Command != "" {
		b.WriteString("\nCommand: " + r.Command)
	}
	if r.State == schemas.JobUnstarted {
		return b.String()
	}
	logs := strings.TrimRight(r.Logs, "\n")
	switch {
	case logs == "" && r.LogBytes == 0:
		b.WriteString("\nOutput: none")
	case logs == "":
		fmt.Fprintf(&b, "\nOutput: %d bytes, not kept", r.LogBytes)
	case r.LogTruncated || r.LogBytes > int64(len(r.Logs)):
		fmt.Fprintf(&b, "\nOutput, the last %d of %d bytes:\n%s", len(r.Logs), max(r.LogBytes, int64(len(r.Logs))), logs)
	default:
		b.WriteString("\nOutput:\n" + logs)
	}
	if r.LogInvalidBytes > 0 {
		fmt.Fprintf(&b, "\n[bytes of the output that were not UTF-8 and are shown as U+FFFD: %d]", r.LogInvalidBytes)
	}
	b.WriteString(lifecycle.JobArtifactsText(r.JobArtifacts))
	return b.String()
}

// howItEnded returns the predicate of the sentence about a job.
func howItEnded(r schemas.JobResult) string {
	how := ""
	if r.ExitCode != nil {
		how = " (exit " + strconv.Itoa(*r.ExitCode) + ")"
	}
	if d := time.Duration(r.DurationMS) * time.Millisecond; d >= time.Second {
		how += " after " + d.Round(100*time.Millisecond).String()
	} else if d > 0 {
		how += " after " + d.String()
	}
	switch r.State {
	case schemas.JobCompleted:
		return "completed" + how
	case schemas.JobStopped:
		return "was stopped" + how
	case schemas.JobExpired:
		return "was ended" + how + ": its lifetime was over"
	case schemas.JobLost:
		return "was lost: how it ended is unknown"
	case schemas.JobUnstarted:
		return "was not started"
	case schemas.JobFailed, schemas.JobWaiting, schemas.JobLaunching, schemas.JobRunning: // the last three are not final
	}
	return "failed" + how
}
