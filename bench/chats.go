package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/chat"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

const (
	chatKind    = "sink"
	chatChannel = schemas.ChannelID("chan_bench")
	// healthyChats get one message after the other. limitedChats have limitedEach messages waiting, and each request for them is answered
	// with a rate limit.
	healthyChats, limitedChats, limitedEach = 50, 50, 20
	mostHealthyMessages                     = 500
	healthyEvery                            = 10 * time.Millisecond
)

// sink is a chat service in this process that accepts everything at once, except for messages to limited chats.
type sink struct {
	mu   sync.Mutex
	came map[string]func() // called when a message arrives, by its text
}

func (s *sink) Profile() channel.Profile {
	return channel.Profile{Kind: chatKind, Format: channel.PlainText, Limit: 4000, Unit: channel.CodePoints, Once: channel.OnceByKey}
}

func (s *sink) Destination(route json.RawMessage) (string, error) {
	var name string
	return name, json.Unmarshal(route, &name)
}

func (s *sink) Send(_ context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	name, err := s.Destination(to.Route)
	if err != nil {
		return channel.Receipt{}, err
	}
	if name[0] == 'l' {
		return channel.Receipt{}, &channel.Error{Outcome: channel.Limited, Reason: "too much", After: time.Second, Of: channel.PerDestination}
	}
	s.mu.Lock()
	came := s.came[m.Text]
	delete(s.came, m.Text)
	s.mu.Unlock()
	if came != nil {
		came()
	}
	return channel.Receipt{ID: "1"}, nil
}

// Get implements [chat.Channels].
func (s *sink) Get(context.Context, schemas.AccountID, schemas.ChannelID) (schemas.ChatChannel, error) {
	return schemas.ChatChannel{ID: chatChannel, Account: benchAccount, Kind: chatKind}, nil
}

// List implements [chat.Channels].
func (s *sink) List(ctx context.Context, a schemas.AccountID) ([]schemas.ChatChannel, error) {
	c, err := s.Get(ctx, a, chatChannel)
	return []schemas.ChatChannel{c}, err
}

func oneMessage(document string, _ chat.Layout) ([]chat.Part, bool) {
	return []chat.Part{{Text: document}}, false
}

// deliver starts a deliverer to a sink; done is called for each delivery that has arrived.
func (o *ours) deliver(ctx context.Context, done func()) *sink {
	s := &sink{came: map[string]func(){}}
	ctx, o.stop = context.WithCancel(ctx)
	d := delivery.Deliverer{
		Bus: o.bus, Channel: chatKind, Sender: &chat.Sender{Bus: o.bus, Channels: s, Adapter: s, Render: oneMessage},
		Metrics: delivery.Metrics{Delivered: func(string, time.Duration) { done() }},
	}
	go func() { o.ended <- d.Run(ctx) }()
	return s
}

// toChat returns a message to a chat and a function that publishes it to the log.
func (o *ours) toChat(ctx context.Context, name string) (text string, publish func() error) {
	n := strconv.FormatInt(o.serial.Add(1), 10)
	e := schemas.Event{ID: "event_" + n, Account: benchAccount, Conversation: schemas.ConversationID("c_" + name), Type: schemas.Message}
	to := schemas.Origin{Kind: schemas.OriginChannel, Channel: chatKind, ChannelID: chatChannel, Route: json.RawMessage(strconv.Quote(name))}
	text = "message " + n
	return text, func() error {
		return lifecycle.Deliver(ctx, o.bus, schemas.ChatDelivery(e, to, "", schemas.ChatBody{Text: text}, o.bus.Now()))
	}
}

// Chats measures one deliverer: messages per second to a chat service that accepts them at once, compared with the bare pipeline; and the
// time of a message to a healthy chat while other chats are rate-limited, compared with the same without those. The writes of the ledger
// and of events are included.
func Chats(ctx context.Context, size Size) (Report, error) {
	var bareRate, ourRate []float64
	var alone, beside []time.Duration
	var tail [2][]float64
	healthy := min(max(size.Calls/3, 1), mostHealthyMessages)
	for range size.Rounds {
		b, err := bareRun(ctx, size.Calls, delivery.DefaultSlots)
		if err != nil {
			return Report{}, err
		}
		rate, err := chatRate(ctx, size.Calls)
		if err != nil {
			return Report{}, err
		}
		bareRate, ourRate = append(bareRate, b), append(ourRate, rate)
		one, two, err := chatRound(ctx, healthy)
		if err != nil {
			return Report{}, err
		}
		alone, beside = append(alone, one...), append(beside, two...)
		for i, of := range [][]time.Duration{one, two} {
			slices.Sort(of)
			tail[i] = append(tail[i], of[len(of)-1-len(of)/100].Seconds())
		}
	}
	return Report{
		Title:   fmt.Sprintf("Messages to chats, %d in a run", size.Calls),
		Machine: machine(),
		Rows: []Row{
			row("bare JetStream pipeline", "messages/s", bareRate), row("messages by one deliverer", "messages/s", ourRate),
			durations("to a healthy chat, undisturbed", time.Millisecond, alone),
			durations("to a healthy chat, beside limited ones", time.Millisecond, beside),
		},
		Ratios: []Ratio{
			ratio("deliveries / bare JetStream", "", ourRate, bareRate),
			ratio("p99 beside limited chats / undisturbed", "≤ 2", tail[1], tail[0]),
		},
		Notes: []string{fmt.Sprintf("%d healthy chats get %d messages in turn, one each %s, from the log to the service. Limited: %d chats with "+
			"%d messages each, whose service answers 429 with a wait of 1 s every time.", healthyChats, healthy, healthyEvery, limitedChats,
			limitedEach)},
	}, nil
}

// chatRate returns how many messages per second arrive, of n messages to a hundred chats.
func chatRate(ctx context.Context, n int) (float64, error) {
	const chats = 100
	o, err := openOurs(ctx)
	if err != nil {
		return 0, err
	}
	defer o.close(ctx)
	done, all := countdown(n)
	o.deliver(ctx, done)
	var serial counter
	start := time.Now()
	if err := produce(n, producers, func() error {
		i, _ := strconv.Atoi(serial.next())
		_, publish := o.toChat(ctx, "healthy "+strconv.Itoa(i%chats))
		return publish()
	}); err != nil {
		return 0, err
	}
	select {
	case <-all:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// chatRound times messages to healthy chats, first undisturbed and then beside limited chats.
func chatRound(ctx context.Context, messages int) (alone, beside []time.Duration, err error) {
	o, err := openOurs(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer o.close(ctx)
	s := o.deliver(ctx, func() {})
	if _, err = o.healthy(ctx, s, healthyChats); err != nil { // connects and warms up
		return nil, nil, err
	}
	if alone, err = o.healthy(ctx, s, messages); err != nil {
		return nil, nil, err
	}
	for i := range limitedChats * limitedEach {
		_, publish := o.toChat(ctx, "limited "+strconv.Itoa(i%limitedChats))
		if err := publish(); err != nil {
			return nil, nil, err
		}
	}
	beside, err = o.healthy(ctx, s, messages)
	return alone, beside, err
}

// healthy sends n messages to healthy chats, one each healthyEvery, and returns how long each took.
func (o *ours) healthy(ctx context.Context, s *sink, n int) ([]time.Duration, error) {
	took, failed := make(chan time.Duration, n), make(chan error, n)
	every := time.NewTicker(healthyEvery)
	defer every.Stop()
	for i := range n {
		<-every.C
		text, publish := o.toChat(ctx, "healthy "+strconv.Itoa(i%healthyChats))
		begun := time.Now()
		s.mu.Lock()
		s.came[text] = func() { took <- time.Since(begun) }
		s.mu.Unlock()
		go func() { failed <- publish() }()
	}
	list := make([]time.Duration, 0, n)
	for range n {
		if err := <-failed; err != nil {
			return nil, err
		}
		select {
		case d := <-took:
			list = append(list, d)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return list, nil
}
