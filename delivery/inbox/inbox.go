package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// Slots is the maximal number of messages in flight. Each occupies memory for some pieces of a file, of [schemas.MaxFileChunk] bytes.
	Slots = 16
	// Limits per account and per channel, so that neither one account nor a service that does not respond occupies all slots.
	mostOfAccount = 8
	mostOfChannel = 4

	// sendWithin limits the time of one try of all files of a message.
	sendWithin = 2 * time.Minute
	// patience is how long one try waits for a worker that has access to the workspace's files.
	patience = 10 * time.Second
	// lastTry is the index of the try after which a message is passed on without the files that could not be fetched.
	lastTry = 2
	// longestRest is the longest delay that a service may request. If it requests more, the message is passed on without its files.
	longestRest = 2 * time.Minute
)

// Waits returns the delays before each try, for [delivery.Deliverer]. The first are short, because a person waits for an answer; the later
// ones are for a stream that does not accept the message.
func Waits() []time.Duration {
	return append([]time.Duration{0, 3 * time.Second, 20 * time.Second}, delivery.Schedule()[2:]...)
}

// Channels finds the chat channels of accounts, with their secrets, from memory.
type Channels interface {
	// Get returns a record. Codes: not_found, unavailable.
	Get(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) (schemas.ChatChannel, error)
}

// Sender passes messages on with their files. It implements [delivery.Sender] and is safe for concurrent use; its fields must not change
// after the first Send.
type Sender struct {
	Bus      *streams.Bus
	Channels Channels
	// Adapter returns the adapter of a kind of channel; false if there is none.
	Adapter func(kind string) (channel.Adapter, bool)
	// Workspace returns the workspace in which a channel's files are stored. Codes: not_found, unavailable.
	Workspace func(ctx context.Context, c schemas.ChatChannel) (schemas.WorkspaceFiles, error)
	// Open opens the files of a workspace. Nil: through the workers, see [Workers].
	Open func(a schemas.AccountID, w schemas.WorkspaceFiles) Folder
	// Endpoints returns the webhook endpoints of an account. Nil: accounts have none.
	Endpoints func(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error)
	// Stored counts files by kind of channel and outcome (stored, refused). Nil: they are not counted.
	Stored func(kind, outcome string)
	Log    *slog.Logger // nil: silent

	once     sync.Once
	inFlight places

	// at is called between the effects of a message. An error from it stops the handling there: tests simulate crashes by it.
	at func(stage) error
}

var _ delivery.Sender = (*Sender)(nil)

// stage is a point between two effects at which tests simulate a crash.
type stage string

const (
	atPiece  stage = "piece"  // a piece of a file is stored
	atStored stage = "stored" // a file is stored
	atMade   stage = "made"   // the message is passed on
)

func (s *Sender) begin() {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Open == nil {
		s.Open = Workers(s.Bus)
	}
	if s.Stored == nil {
		s.Stored = func(string, string) {}
	}
	if s.at == nil {
		s.at = func(stage) error { return nil }
	}
}

// Send fetches the files of a message that are not stored yet, and passes it on once that has succeeded or failed for good.
func (s *Sender) Send(ctx context.Context, d schemas.Delivery) (schemas.DeliveryTry, delivery.Verdict) {
	s.once.Do(s.begin)
	try := schemas.DeliveryTry{Time: s.Bus.Now().UTC()}
	failed := func(after time.Duration, err error) (schemas.DeliveryTry, delivery.Verdict) {
		try.Error = schemas.Public(err).Error()
		return try, delivery.Verdict{Kind: delivery.Failed, After: after}
	}
	var in schemas.Incoming
	if err := json.Unmarshal([]byte(d.Body), &in); err != nil || in.Turn.Message == nil {
		return try, delivery.Verdict{Kind: delivery.Dropped, Reason: "it is no message of a chat"}
	}
	in.Turn.Account = d.Account // the subject is authoritative, not the body
	m := *in.Turn.Message
	if !s.inFlight.enter(d.Account, m.Channel) {
		return try, delivery.Verdict{Kind: delivery.Busy}
	}
	defer s.inFlight.leave(d.Account, m.Channel)
	if done, err := s.waits(ctx, d, in); err != nil || !done {
		if err != nil {
			return failed(0, err)
		}
		return try, delivery.Verdict{Kind: delivery.Busy} // redelivered within some seconds
	}
	known, err := lifecycle.WasReceived(ctx, s.Bus, d.Account, in.Turn.ID)
	if err != nil {
		return failed(0, err)
	}
	if !known && len(m.Files) > 0 { // otherwise the outcome of its files is already stored
		var after time.Duration
		if m, after, err = s.fetchAll(ctx, m, in.Turn, d.Attempt >= lastTry); err != nil {
			return failed(after, err)
		}
	}
	in.Turn.Message, in.Turn.Text = &m, m.Said()
	if err := s.receive(ctx, in.Turn); err != nil {
		return failed(0, err)
	}
	return try, delivery.Verdict{Kind: delivery.Delivered}
}

// waits returns true if a message need not, or no longer, wait for the message before it: that has been passed on, or has taken too long.
func (s *Sender) waits(ctx context.Context, d schemas.Delivery, in schemas.Incoming) (done bool, err error) {
	if in.After == "" || s.Bus.Now().Sub(d.Created) > schemas.FilesWithin {
		return true, nil
	}
	return lifecycle.WasReceived(ctx, s.Bus, d.Account, in.After)
}

func (s *Sender) receive(ctx context.Context, f schemas.FollowUp) error {
	var endpoints []schemas.Endpoint
	if s.Endpoints != nil {
		var err error
		if endpoints, err = s.Endpoints(ctx, f.Account); err != nil {
			return err
		}
	}
	if err := lifecycle.Receive(ctx, s.Bus, f, endpoints); err != nil {
		return err
	}
	return s.at(atMade)
}

// places counts the messages in flight per account and per channel.
type places struct {
	mu      sync.Mutex
	account map[schemas.AccountID]int
	channel map[schemas.ChannelID]int
}

func (p *places) enter(a schemas.AccountID, c schemas.ChannelID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.account == nil {
		p.account, p.channel = map[schemas.AccountID]int{}, map[schemas.ChannelID]int{}
	}
	if p.account[a] >= mostOfAccount || p.channel[c] >= mostOfChannel {
		return false
	}
	p.account[a]++
	p.channel[c]++
	return true
}

func (p *places) leave(a schemas.AccountID, c schemas.ChannelID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.account[a]--; p.account[a] == 0 {
		delete(p.account, a)
	}
	if p.channel[c]--; p.channel[c] == 0 {
		delete(p.channel, c)
	}
}

// fetchAll fetches the files of a message and returns the message with the outcome of each file. It returns the error of a file that may
// succeed later, with the minimal delay; if last is true, it returns only errors of Sandjet's own streams.
func (s *Sender) fetchAll(ctx context.Context, m schemas.ChatMessage, turn schemas.FollowUp, last bool) (
	out schemas.ChatMessage, after time.Duration, err error,
) {
	files := append([]schemas.ChatFile(nil), m.Files...)
	out = m
	out.Files = files
	c, err := s.Channels.Get(ctx, turn.Account, m.Channel)
	if errors.Is(err, schemas.ErrNotFound) || err == nil && c.Disabled {
		return refused(out, "the channel is gone or disabled"), 0, nil
	}
	if err != nil {
		return m, 0, err
	}
	w, err := s.Workspace(ctx, c)
	switch code := schemas.CodeOf(err); {
	case code == schemas.NotFound || code == schemas.Invalid:
		return refused(out, "the channel has no workspace for it: "+schemas.Public(err).Message), 0, nil
	case err != nil:
		return m, 0, err
	}
	adapter, _ := s.Adapter(c.Kind)
	fetcher, ok := adapter.(channel.Fetcher)
	if !ok {
		return refused(out, "files of "+c.Kind+" cannot be fetched"), 0, nil
	}
	g := getting{
		s: s, folder: s.Open(turn.Account, w), fetcher: fetcher, left: schemas.MaxChatFilesSize, setting: c.Settings[schemas.SettingFiles],
		to: channel.Destination{Credential: c.Secrets, Settings: c.Settings, Route: routeOf(turn)},
	}
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	paths := schemas.InboxPaths(turn.ID, files)
	log := s.Log.With("account", turn.Account, "channel", c.ID, "event", m.Event)
	for i := range files {
		f := &files[i]
		err := g.get(ctx, f, paths[i])
		if outcome, wait := verdict(err, last); outcome == later {
			log.Info("file of a message not fetched, retrying", "file", i, "error", err)
			if ctx.Err() == nil {
				return m, wait, err
			}
			return m, wait, schemas.Wrap(schemas.Timeout, "fetch", "the files of the message took longer than "+sendWithin.String(), err)
		}
		if err != nil {
			f.Path, f.Reason = "", reasonOf(err)
			s.Stored(c.Kind, "refused")
			log.Info("file of a message not stored", "file", i, "error", err)
			continue
		}
		out.Workspace = w.ID
		s.Stored(c.Kind, "stored")
	}
	return out, 0, nil
}

func routeOf(f schemas.FollowUp) json.RawMessage {
	if f.Origin == nil {
		return nil
	}
	return f.Origin.Route
}

// refused returns the message with a reason why its files are not stored.
func refused(m schemas.ChatMessage, why string) schemas.ChatMessage {
	for i := range m.Files {
		m.Files[i].Reason = why
	}
	return m
}
