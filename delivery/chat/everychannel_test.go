package chat

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/discord"
	"github.com/sandjet/sandjet/delivery/discord/discordtest"
	"github.com/sandjet/sandjet/delivery/github"
	"github.com/sandjet/sandjet/delivery/github/githubtest"
	"github.com/sandjet/sandjet/delivery/pancake"
	"github.com/sandjet/sandjet/delivery/pancake/pancaketest"
	"github.com/sandjet/sandjet/delivery/slack"
	"github.com/sandjet/sandjet/delivery/slack/slacktest"
	"github.com/sandjet/sandjet/delivery/telegram"
	"github.com/sandjet/sandjet/delivery/telegram/telegramtest"
	"github.com/sandjet/sandjet/delivery/zalo"
	"github.com/sandjet/sandjet/delivery/zalo/zalotest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// realService is a chat service with its own adapter and its test double.
type realService struct {
	open    func(channel.Options) (channel.Adapter, error)
	double  func() *chatfake.Server
	secrets map[string]string
	route   func(n int) string // of the nth chat
	place   func(n int) string // the double's name of that chat
}

// adapted converts the constructor of an adapter to one that returns a [channel.Adapter].
func adapted[A channel.Adapter](open func(channel.Options) (A, error)) func(channel.Options) (channel.Adapter, error) {
	return func(o channel.Options) (channel.Adapter, error) { return open(o) }
}

func realServices() map[string]realService {
	numbered := func(format string) func(int) string {
		return func(n int) string { return fmt.Sprintf(format, 41771983423143937+n) }
	}
	return map[string]realService{
		"telegram": {adapted(telegram.New), func() *chatfake.Server { return telegramtest.New(telegramtest.Options{}) },
			map[string]string{"bot_token": "1:a"}, numbered(`{"chat_id":%d}`), numbered("%d")},
		"discord": {adapted(discord.New), func() *chatfake.Server {
			return discordtest.New(discordtest.Options{Key: ed25519.NewKeyFromSeed(make([]byte, 32)), Now: soon}).Server
		}, map[string]string{"bot_token": "a"}, numbered(`{"channel_id":"%d"}`), numbered("%d")},
		"slack": {adapted(slack.New), func() *chatfake.Server { return slacktest.New(slacktest.Options{}) },
			map[string]string{"bot_token": "xoxb-1"}, numbered(`{"channel_id":"C%d"}`), numbered("C%d")},
		"github": {adapted(github.New), func() *chatfake.Server { return githubtest.New(githubtest.Options{}).Server },
			map[string]string{"token": "ghp_1"}, numbered(`{"repo":"octo/hello","number":%d}`), numbered("octo/hello#%d")},
		"zalo": {adapted(zalo.New), func() *chatfake.Server { return zalotest.New(zalotest.Options{}) },
			map[string]string{"bot_token": "1:a"}, numbered(`{"chat_id":"%d"}`), numbered("%d")},
		"pancake": {adapted(pancake.New), func() *chatfake.Server { return pancaketest.New(pancaketest.Options{}) },
			map[string]string{"page_access_token": "a"}, numbered(`{"page_id":"1","conversation_id":"1_%d"}`), numbered("1/1_%d")},
	}
}

// soon returns a time for Discord, whose ids count from 2015: virtual time begins in 2000.
func soon() time.Time { return time.Now().AddDate(20, 0, 0) }

// pipes is a network within the process, with which virtual time can advance while all goroutines wait.
type pipes struct {
	arriving chan net.Conn
	closed   chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.arriving:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.arriving <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve serves a double on a network of its own, and returns options with which an adapter reaches it.
func serve(t *testing.T, d *chatfake.Server) (channel.Options, func()) {
	t.Helper()
	p := pipes{make(chan net.Conn), make(chan struct{})}
	s := &http.Server{Handler: d, ReadHeaderTimeout: time.Hour}
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(p) })
	way := &http.Transport{DialContext: p.dial, IdleConnTimeout: 20 * time.Second, DisableCompression: true}
	return channel.Options{Base: "http://service.example", Transport: way}, func() {
		d.Close()
		_ = s.Close()
		way.CloseIdleConnections()
		served.Wait()
	}
}

// harmful returns the faults after which a message must be retried or searched for.
func harmful() []chatfake.Fault {
	return []chatfake.Fault{chatfake.Drop, chatfake.CommitThenDrop, chatfake.TooMany, chatfake.TooManyBare, chatfake.ServerError,
		chatfake.CommitThenServerError, chatfake.Hang, chatfake.CommitThenHang, chatfake.CommitThenTruncate, chatfake.CommitThenMalformed,
		chatfake.CommitThenLong}
}

// TestEveryChannelHasEveryMessageOnce sends by the adapters of all services to their doubles, which lose requests and responses, while the
// three deliverers crash or are suspended. No message is lost. If the service lets the sender check, no message arrives twice; otherwise
// all but one copy say that they may be repeats.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestEveryChannelHasEveryMessageOnce(t *testing.T) {
	t.Parallel()
	deliveries := 500
	if !longtest.Asked() {
		deliveries = 40
	}
	for kind, r := range realServices() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			natstest.Run(t, func(t *testing.T, b *streams.Bus) { everyMessageThere(t, b, kind, r, deliveries) })
		})
	}
}

func everyMessageThere(t *testing.T, b *streams.Bus, kind string, r realService, deliveries int) {
	double := r.double()
	options, end := serve(t, double)
	defer end()
	adapter, err := r.open(options)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards the variables below
	chance := rand.New(rand.NewPCG(15, uint64(len(kind))))
	faults, deaths, pauses := 0, 0, 0
	double.Choose(func(*http.Request) chatfake.Fault {
		mu.Lock()
		defer mu.Unlock()
		if chance.IntN(4) > 0 {
			return chatfake.None
		}
		faults++
		return harmful()[chance.IntN(len(harmful()))]
	})
	at := func(stage, schemas.Delivery) error {
		mu.Lock()
		what := chance.IntN(20)
		deaths += map[int]int{0: 1}[what]
		pauses += map[int]int{1: 1}[what]
		mu.Unlock()
		switch what {
		case 0:
			return errDied
		case 1:
			time.Sleep(11 * time.Minute)
		}
		return nil
	}
	bots := records{{ID: "chan_1", Account: "acct_1", Kind: kind, Name: "bot", Secrets: r.secrets}}
	senders := make([]*Sender, 3)
	for i := range senders {
		senders[i] = &Sender{Bus: b, Channels: bots, Adapter: adapter, Render: inLines, at: at}
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, 50)
	for n := range deliveries {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			d := toChat(n, "", fmt.Sprintf("first of %d\nsecond of %d", n, n))
			d.Channel, d.ChannelID, d.Route = kind, "chan_1", json.RawMessage(r.route(n))
			handOut(t, senders, d)
		})
	}
	wg.Wait()
	in := map[string][]string{}
	for _, m := range double.Messages() {
		in[m.Place] = append(in[m.Place], m.Text)
	}
	p := adapter.Profile()
	_, finds := adapter.(channel.Finder)
	// A service that knows keys for some minutes and cannot be searched is afterwards like one without keys.
	never, repeats := p.Once == channel.OnceNever || p.Window > 0 && !finds, 0
	for n := range deliveries {
		got := in[r.place(n)]
		for _, word := range []string{"first", "second"} {
			whole, unmarked := 0, 0
			for _, text := range got {
				if !strings.HasSuffix(text, fmt.Sprintf("%s of %d", word, n)) {
					continue
				}
				whole++
				if !strings.HasPrefix(text, mark) {
					unmarked++
				}
			}
			repeats += whole - 1
			if whole == 0 || whole > 1 && !never || unmarked > 1 {
				t.Errorf("delivery %d: the %s part came %d times, %d times without a mark: %q", n, word, whole, unmarked, got)
			}
		}
	}
	if faults < deliveries/4 || deaths < deliveries/10 || pauses < deliveries/10 || p.Once == channel.OnceNever && repeats == 0 {
		t.Errorf("%d faults, %d deaths, %d pauses, %d repeats: this shows nothing", faults, deaths, pauses, repeats)
	}
	t.Logf("%d deliveries, %d requests, %d faults, %d deaths, %d pauses, %d marked repeats", deliveries, double.Requests(), faults, deaths,
		pauses, repeats)
}
