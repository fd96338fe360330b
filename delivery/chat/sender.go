package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Channels finds the chat channels of accounts, with their secrets, from memory.
type Channels interface {
	Get(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) (schemas.ChatChannel, error)
	List(ctx context.Context, a schemas.AccountID) ([]schemas.ChatChannel, error)
}

// Metrics are the functions by which a sender reports metrics. Each may be nil. They are called concurrently and must not block.
type Metrics struct {
	// Sent counts requests by their outcome: sent, found, not_sent, limited, ambiguous, refused.
	Sent func(kind, outcome string)
	// Repeated counts messages that are marked as possible repeats.
	Repeated func(kind string)
}

// Sender sends deliveries by one adapter. It implements [delivery.Sender] and is safe for concurrent use; its fields must not change after
// the first Send.
type Sender struct {
	Bus      *streams.Bus
	Channels Channels
	Adapter  channel.Adapter
	Render   Render
	// Pacer is shared by all deliverers. If it is nil or fails, each deliverer enforces the rate limits by itself.
	Pacer Pacer
	// Digest returns a keyed hash of a text, which is the same in all deliverers; false if there is no key. It identifies a credential, so
	// that all channel records with the same credential share rate limits. Nil: each record has limits of its own.
	Digest func(text string) (string, bool)
	// Log may be nil.
	Log     *slog.Logger
	Metrics Metrics

	once    sync.Once
	profile channel.Profile
	ledgers *streams.Bucket[ledger]
	lanes   *lanes
	pace    *pacer

	// at is called between the effects of a delivery. An error from it stops the handling there: tests simulate crashes and suspensions by
	// it.
	at func(stage, schemas.Delivery) error
}

var _ delivery.Sender = (*Sender)(nil)

// stage is a point between two effects at which tests simulate a crash.
type stage string

const (
	atNoted    stage = "noted"    // the ledger says that the part is being sent, before the request
	atAnswered stage = "answered" // the service has responded, before the ledger is updated
	atStored   stage = "stored"   // the ledger is updated
)

const (
	pacedFor    = 2 * time.Second  // how long a delivery may wait for its turn while it occupies its slot
	storeWithin = 30 * time.Second // time limit for storing a receipt
	stepsAtMost = 64               // per try; more than all parts need
)

func (s *Sender) begin() {
	s.profile = s.Adapter.Profile()
	s.ledgers = streams.OpenBucket[ledger](s.Bus, streams.SentParts)
	s.lanes = newLanes()
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.Log = s.Log.With("channel", s.profile.Kind)
	s.pace = &pacer{shared: s.Pacer, log: s.Log}
	if s.Metrics.Sent == nil {
		s.Metrics.Sent = func(string, string) {}
	}
	if s.Metrics.Repeated == nil {
		s.Metrics.Repeated = func(string) {}
	}
	if s.at == nil {
		s.at = func(stage, schemas.Delivery) error { return nil }
	}
}

// Send sends the remaining parts of a delivery, until one cannot be sent now.
func (s *Sender) Send(ctx context.Context, d schemas.Delivery) (schemas.DeliveryTry, delivery.Verdict) {
	s.once.Do(s.begin)
	began, now := time.Now(), s.Bus.Now()
	v, why := s.send(ctx, d)
	try := schemas.DeliveryTry{Time: now.UTC(), Duration: schemas.Duration(time.Since(began)), Error: why}
	return try, v
}

// send returns the verdict, and the reason if the try has failed.
func (s *Sender) send(ctx context.Context, d schemas.Delivery) (delivery.Verdict, string) {
	stop := func(reason string) (delivery.Verdict, string) {
		return delivery.Verdict{Kind: delivery.Stopped, Reason: reason}, reason
	}
	record, err := s.record(ctx, d)
	if code := schemas.CodeOf(err); code == schemas.NotFound || code == schemas.Denied {
		return stop(message(err))
	} else if err != nil {
		s.Log.Warn("channel record not readable yet", "delivery", d.ID, "error", err)
		return delivery.Verdict{Kind: delivery.Busy}, ""
	}
	destination, err := s.Adapter.Destination(d.Route)
	if err != nil {
		return stop("its route is no place of " + s.profile.Kind + ": " + message(err))
	}
	m, err := bodyOf(d)
	if err != nil {
		return stop(message(err))
	}
	here := Place{s.counted(record), destination}
	v, ok := s.lanes.enter(d.Account, here)
	if !ok {
		return v, ""
	}
	defer s.lanes.leave(d.Account, here)
	return (&send{Sender: s, d: d, m: m, record: record, place: here, holder: schemas.NewID("try_")}).run(ctx)
}

// counted returns the id by which the service's limits are counted, the same for all records with one credential. Without Digest it is the
// record's own id.
func (s *Sender) counted(c schemas.ChatChannel) schemas.ChannelID {
	if s.Digest == nil {
		return c.ID
	}
	parts := []string{s.profile.Kind}
	for _, field := range s.profile.Secrets {
		if v := c.Secrets[field.Name]; field.Counted && v != "" {
			parts = append(parts, field.Name, v)
		}
	}
	if len(parts) == 1 {
		return c.ID
	}
	if digest, ok := s.Digest(strings.Join(parts, "\x00")); ok {
		return schemas.ChannelID(digest)
	}
	return c.ID
}

// record returns the channel record of a delivery. Codes: not_found, denied (it is disabled), unavailable; the message explains the error
// to people.
func (s *Sender) record(ctx context.Context, d schemas.Delivery) (schemas.ChatChannel, error) {
	none := schemas.ChatChannel{}
	kind := s.profile.Kind
	var c schemas.ChatChannel
	if d.ChannelID != "" {
		var err error
		if c, err = s.Channels.Get(ctx, d.Account, d.ChannelID); errors.Is(err, schemas.ErrNotFound) || err == nil && c.Kind != kind {
			return none, schemas.Errorf(schemas.NotFound, "the account has no %s channel %s", kind, d.ChannelID)
		} else if err != nil {
			return none, err
		}
	} else {
		list, err := s.Channels.List(ctx, d.Account)
		if err != nil {
			return none, err
		}
		n := 0
		for _, x := range list {
			if x.Kind == kind {
				c = x
				n++
			}
		}
		switch {
		case n == 0:
			return none, schemas.Errorf(schemas.NotFound, "the account has no %s channel: sandjet channels create makes one", kind)
		case n > 1:
			return none, schemas.Errorf(schemas.NotFound,
				"the account has %d %s channels, and the call's origin does not say which by channel_id", n, kind)
		}
	}
	if c.Disabled {
		return none, schemas.Errorf(schemas.Denied, "the channel %s is disabled: %s", c.ID, c.Reason)
	}
	return c, nil
}

// message returns an error's message for people.
func message(err error) string {
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// send is the state of one try of a delivery.
type send struct {
	*Sender

	d      schemas.Delivery
	m      schemas.ChatBody
	record schemas.ChatChannel
	place  Place
	holder string

	have     ledger // as stored
	revision uint64
}

// run continues the delivery from the state in its ledger.
func (s *send) run(ctx context.Context) (delivery.Verdict, string) {
	if err := s.load(ctx); err != nil {
		if errors.Is(err, errEarlier) {
			return delivery.Verdict{Kind: delivery.Held, After: earlierAfter}, ""
		}
		if schemas.CodeOf(err) == schemas.Invalid {
			return delivery.Verdict{Kind: delivery.Stopped, Reason: message(err)}, message(err)
		}
		s.Log.Warn("message ledger not read, delivery waiting", "delivery", s.d.ID, "error", err)
		return delivery.Verdict{Kind: delivery.Busy}, ""
	}
	h := s.wake()
	for range stepsAtMost {
		l, a := next(s.have, h, s.rules())
		if a.kind == doSend {
			if v, ok := s.turn(ctx); !ok {
				return v, ""
			}
			h.now = s.Bus.Now() // waiting for the turn may have taken long, and the request's deadline counts from now
			l, a = next(s.have, h, s.rules())
		}
		switch err := s.store(ctx, l, h.kind != wake); {
		case errors.Is(err, schemas.ErrConflict): // another deliverer has changed it, and its version counts
			if err := s.load(ctx); err != nil {
				return delivery.Verdict{Kind: delivery.Busy}, ""
			}
			h = s.wake()
			continue
		case err != nil:
			s.Log.Warn("message ledger not written, delivery waiting", "delivery", s.d.ID, "error", err)
			return delivery.Verdict{Kind: delivery.Busy}, ""
		}
		if h.kind == received || h.kind == found {
			if s.at(atStored, s.d) != nil {
				return delivery.Verdict{Kind: delivery.Busy}, ""
			}
		}
		var died bool
		switch a.kind {
		case doSend:
			h, died = s.request(ctx, a)
		case doLook:
			h = s.look(ctx, a)
		case doNext:
			h = s.wake()
		case doDone:
			return delivery.Verdict{Kind: delivery.Delivered}, ""
		case doWait:
			v := delivery.Verdict{Kind: delivery.Held, After: cmp.Or(a.wait, limitedFor)}
			if h.kind == limited { // otherwise another deliverer is sending the part
				v.Reason = a.reason
			}
			return v, a.reason
		case doRetry:
			return delivery.Verdict{Kind: delivery.Failed, After: a.wait}, a.reason
		case doStop:
			return delivery.Verdict{Kind: delivery.Stopped, Reason: a.reason}, a.reason
		}
		if died {
			return delivery.Verdict{Kind: delivery.Busy}, ""
		}
	}
	return delivery.Verdict{Kind: delivery.Busy}, ""
}

func (s *send) wake() happening {
	return happening{kind: wake, now: s.Bus.Now(), holder: s.holder, replay: s.d.Replay}
}

func (s *send) rules() rules {
	_, finds := s.Adapter.(channel.Finder)
	return rules{once: s.profile.Once, window: s.profile.Window, finds: finds, onAmbiguous: s.record.OnAmbiguous}
}

func (s *send) key() string { return string(s.d.Account) + "." + string(s.d.ID) }

// load reads the ledger, or creates it if there is none.
func (s *send) load(ctx context.Context) error {
	for range 2 {
		e, err := s.ledgers.Get(ctx, s.key())
		if err == nil && !e.Deleted {
			s.have, s.revision = e.Value, e.Revision
			return nil
		}
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
		l, err := s.first(ctx)
		if err != nil {
			return err
		}
		rev, err := s.ledgers.Create(ctx, s.key(), l, 0)
		if err == nil {
			s.have, s.revision = l, rev
			return nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
	}
	return schemas.Errorf(schemas.Unavailable, "another makes the ledger of %s", s.d.ID)
}

// store writes the ledger if it has changed. With must, for a result of the service that must not be lost, it retries for up to
// storeWithin, even if ctx has ended.
func (s *send) store(ctx context.Context, l ledger, must bool) error {
	if same(l, s.have) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWithin)
	defer cancel()
	pause := wait.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}
	for n := 0; ; n++ {
		rev, err := s.ledgers.Update(ctx, s.key(), l, s.revision)
		if err == nil {
			s.have, s.revision = l, rev
			return nil
		}
		if !must || errors.Is(err, schemas.ErrConflict) || !pause.Sleep(ctx, n) {
			return fmt.Errorf("store the result of %s: %w", s.d.ID, err)
		}
	}
}

// turn waits until the service's rate limits allow the next request. If that takes long it returns a verdict, so that the delivery frees
// its slot meanwhile.
func (s *send) turn(ctx context.Context) (delivery.Verdict, bool) {
	for end := time.Now().Add(pacedFor); ; {
		after := s.lanes.resting(s.place)
		if after == 0 {
			after = s.pace.take(ctx, s.place, s.profile.Pace)
		}
		switch {
		case after <= 0:
			return delivery.Verdict{}, true
		case time.Now().Add(after).After(end):
			return delivery.Verdict{Kind: delivery.Held, After: after, Reason: rests(after)}, false
		}
		if !wait.Sleep(ctx, after) {
			return delivery.Verdict{Kind: delivery.Busy}, false
		}
	}
}

// rest pauses a place, here and in all deliverers that share the pacer.
func (s *send) rest(ctx context.Context, at Place, wait time.Duration) {
	s.lanes.pause(at, wait)
	s.pace.rest(ctx, at, wait)
}

// to returns the destination of the parts.
func (s *send) to() channel.Destination {
	route := s.d.Route
	if len(s.have.Route) > 0 {
		route = s.have.Route
	}
	return channel.Destination{Credential: s.record.Secrets, Route: route, Settings: s.record.Settings}
}

// request sends a part. The ledger must already record that it is being sent.
func (s *send) request(ctx context.Context, a action) (h happening, died bool) {
	if s.at(atNoted, s.d) != nil {
		return h, true
	}
	h = happening{now: s.Bus.Now(), holder: s.holder}
	left := s.have.Until.Sub(h.now)
	if left <= 0 || left > sendWithin { // this process was suspended, and another may be sending it now
		h.kind = neverTried
		return h, false
	}
	if a.marked {
		s.Metrics.Repeated(s.profile.Kind)
	}
	m := messageFor(s.d, s.m, s.have, a.part, s.profile)
	within, cancel := context.WithTimeout(ctx, left)
	began := time.Now()
	receipt, err := s.carry(within, m, s.have.Parts[a.part].Edits)
	cancel()
	s.lanes.took(s.place, time.Since(began))
	h.now = s.Bus.Now()
	if err == nil {
		h.kind, h.receipt = received, receipt
		if receipt.Rest > 0 { // the service reports that its rate limit is used up
			s.rest(ctx, s.place, receipt.Rest)
		}
	} else {
		h.fail(err)
		s.failed(ctx, err, h)
	}
	s.Metrics.Sent(s.profile.Kind, outcomeOf(h.kind))
	return h, s.at(atAnswered, s.d) != nil
}

// carry sends a message, or edits the earlier one that it replaces.
func (s *send) carry(ctx context.Context, m channel.Message, e *edit) (channel.Receipt, error) {
	if e == nil {
		return s.Adapter.Send(ctx, s.to(), m)
	}
	a, ok := s.Adapter.(channel.Editor)
	if !ok { // the ledger is from another version, whose adapter had an Editor
		return channel.Receipt{}, &channel.Error{Outcome: channel.Refused, Reason: "messages of " + s.profile.Kind + " cannot be written anew"}
	}
	return channel.Receipt{}, a.Edit(ctx, s.to(), e.ID, m)
}

// fail sets the event's fields by the error of a send.
func (h *happening) fail(err error) {
	h.reason = "the service did not answer in a way that is understood"
	if e, ok := errors.AsType[*channel.Error](err); ok {
		h.reason, h.after, h.keyless, h.credential = e.Reason, e.After, e.Keyless, e.Credential
	}
	switch channel.OutcomeOf(err) {
	case channel.NotSent:
		h.kind = notSent
	case channel.Limited:
		h.kind = limited
		h.after = cmp.Or(max(h.after, 0), limitedFor)
	case channel.Refused:
		h.kind = refused
	default:
		h.kind = unclear
	}
}

// failed pauses the place or channel if the error asks for it, and logs the error.
func (s *send) failed(ctx context.Context, err error, h happening) {
	log := s.Log.With("delivery", s.d.ID, "account", s.d.Account, "channel_id", s.record.ID, "outcome", outcomeOf(h.kind))
	e, _ := errors.AsType[*channel.Error](err)
	switch {
	case h.kind == limited && e != nil && e.Of == channel.PerCredential:
		s.rest(ctx, Place{Channel: s.place.Channel}, h.after)
	case h.kind == limited:
		s.rest(ctx, s.place, h.after)
	case e != nil && e.Credential:
		log.Warn("channel credential refused by its service", "reason", e.Reason)
		return
	}
	log.Info("message not sent", "reason", h.reason)
}

// look searches the chat for a part that may have arrived.
func (s *send) look(ctx context.Context, a action) happening {
	h := happening{kind: lookFailed, holder: s.holder, reason: "nobody knows whether it arrived, and its chat cannot be looked through"}
	if finder, ok := s.Adapter.(channel.Finder); ok {
		within, cancel := context.WithTimeout(ctx, sendWithin)
		defer cancel()
		receipt, there, err := finder.Find(within, s.to(), keyOf(s.d.ID, a.part), a.since.Add(-streams.ClocksApart))
		e, _ := errors.AsType[*channel.Error](err)
		switch {
		case err == nil && there:
			h.kind, h.receipt = found, receipt
			s.Metrics.Sent(s.profile.Kind, outcomeOf(found))
		case err == nil:
			h.kind = absentThere
		case e != nil:
			h.reason, h.after = e.Reason, e.After
		}
	}
	h.now = s.Bus.Now()
	return h
}

// outcomeOf returns the outcome's name for metrics and logs.
func outcomeOf(k happeningKind) string {
	switch k {
	case received:
		return "sent"
	case unclear:
		return "ambiguous"
	default:
		return string(k)
	}
}
