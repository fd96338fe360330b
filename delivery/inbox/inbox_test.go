package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/telegram"
	"github.com/sandjet/sandjet/delivery/telegram/telegramtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	worker "github.com/sandjet/sandjet/workers/files"
)

const (
	account = schemas.AccountID("acct_1")
	token   = "1:a-secret-of-the-bot"
)

// office is a chat service, a worker with access to the files of a workspace, and the deliverer that fetches files.
type office struct {
	t     *testing.T
	bus   *streams.Bus
	fake  *chatfake.Server
	dir   string // of the workspace
	chat  schemas.ChatChannel
	where schemas.WorkspaceFiles
	open  channel.Adapter
	log   journal
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (o *office) Get(context.Context, schemas.AccountID, schemas.ChannelID) (schemas.ChatChannel, error) {
	if o.chat.ID == "" {
		return o.chat, schemas.Errorf(schemas.NotFound, "there is no such channel")
	}
	return o.chat, nil
}

// OpenWorkspace opens the same folder for all workspaces.
func (o *office) OpenWorkspace(context.Context, schemas.AccountID, providers.Mount) (workspacefs.FS, error) {
	root, err := safefs.Open(o.dir, safefs.Options{})
	if err != nil {
		return nil, err
	}
	return root, nil
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{
		t: t, bus: natstest.Start(t).Bus, fake: telegramtest.New(telegramtest.Options{}), dir: t.TempDir(),
		chat:  schemas.ChatChannel{ID: "chan_1", Account: account, Kind: "telegram", Secrets: map[string]string{"bot_token": token}},
		where: schemas.WorkspaceFiles{Workspace: schemas.Workspace{ID: "ws_1", Account: account, Name: "default"}, Provider: "local"},
	}
	server := httptest.NewServer(o.fake)
	t.Cleanup(server.Close)
	t.Cleanup(o.fake.Close)
	a, err := telegram.New(channel.Options{Base: server.URL, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o.open = a
	o.run("files", func(ctx context.Context) error {
		(&worker.Server{Bus: o.bus, Place: streams.FilesInFolders("local"), Open: worker.InFolders(o), Log: slog.New(slog.DiscardHandler)}).Run(ctx)
		return nil
	})
	testwait.Eventually(t, "a worker answers for files", func() bool {
		_, err := Workers(o.bus)(account, o.where).Stat(t.Context(), "none")
		return errors.Is(err, schemas.ErrNotFound)
	})
	return o
}

// run runs part until the test ends.
func (o *office) run(name string, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	o.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			o.t.Errorf("%s: %v", name, err)
		}
	})
}

func (o *office) sender() *Sender {
	return &Sender{
		Bus: o.bus, Channels: o, Adapter: func(kind string) (channel.Adapter, bool) { return o.open, kind == "telegram" },
		Workspace: func(context.Context, schemas.ChatChannel) (schemas.WorkspaceFiles, error) { return o.where, nil },
		Log:       slog.New(slog.NewTextHandler(&o.log, nil)),
	}
}

// put stores a file in the service.
func (o *office) put(id string, content []byte) schemas.ChatFile {
	o.fake.Put(telegramtest.PathOf(token, id), chatfake.Reply{Status: http.StatusOK, Body: content}, nil)
	return schemas.ChatFile{Name: id, Ref: id}
}

// message returns the nth message, with files.
func (o *office) message(n int, text string, files ...schemas.ChatFile) schemas.Incoming {
	chat := schemas.Chat{Account: account, Channel: o.chat.ID, Kind: "telegram", Name: schemas.ChatName("chan_1", "tg:1"),
		Route: []byte(`{"chat_id":1}`)}
	return schemas.Incoming{Turn: schemas.MessageTurn(chat, "agent_1", schemas.ChatMessage{
		Channel: "chan_1", Kind: "telegram", Event: fmt.Sprintf("tg:%d", n), Place: "1", User: "7", Text: text, Files: files,
		Received: o.bus.Now(),
	})}
}

// turns returns the turns that harnesses receive.
func (o *office) turns() []schemas.FollowUp {
	o.t.Helper()
	var list []schemas.FollowUp
	for v, err := range streams.Turns.Replay(o.t.Context(), o.bus, "", schemas.Cursor{}) {
		if err != nil {
			o.t.Fatal(err)
		}
		list = append(list, v.Value)
	}
	return list
}

// received returns the messages in the events on the conversation.
func (o *office) received() (list []schemas.ChatMessage) {
	o.t.Helper()
	page, err := streams.ReadEvents(o.t.Context(), o.bus, account, schemas.ChatName("chan_1", "tg:1"), 0, 100)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, e := range page.Events {
		var m schemas.ChatMessage
		if err := json.Unmarshal(e.Value.Data, &m); err != nil || e.Value.Type != schemas.MessageReceived {
			o.t.Fatalf("%+v, %v", e.Value, err)
		}
		list = append(list, m)
	}
	return list
}

// only returns the only message, which must be the same in its turn and its event.
func (o *office) only() schemas.ChatMessage {
	o.t.Helper()
	turns, events := o.turns(), o.received()
	if len(turns) != 1 || len(events) != 1 {
		o.t.Fatalf("%d turns and %d events\n%s", len(turns), len(events), o.log.String())
	}
	if m := *turns[0].Message; !slices.Equal(m.Files, events[0].Files) || m.Workspace != events[0].Workspace || turns[0].Text != m.Said() {
		o.t.Fatalf("the turn says %+v, the event %+v", turns[0], events[0])
	}
	return events[0]
}

// stored returns the files in the inbox folder.
func (o *office) stored() map[string][]byte {
	o.t.Helper()
	got := map[string][]byte{}
	root := filepath.Join(o.dir, schemas.InboxFolder)
	err := filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(p)
		rel, _ := filepath.Rel(o.dir, p)
		got[rel] = content
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		o.t.Fatal(err)
	}
	return got
}

func delivered(in schemas.Incoming, attempt int) schemas.Delivery {
	d := schemas.IncomingDelivery(in)
	d.Attempt = attempt
	return d
}

func content(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

//guarantee:a-message-of-a-chat-counts-once
func TestFilesOfAMessageAreStored(t *testing.T) {
	o := newOffice(t)
	small, large := content(3), content(3*schemas.MaxFileChunk)
	in := o.message(1, "see", o.put("a.txt", small), o.put("b.bin", large), o.put("empty", nil),
		schemas.ChatFile{Name: "../../etc/cron.d/x\n", Ref: o.put("x", small).Ref},
		schemas.ChatFile{Name: "A.TXT", Type: "text/plain", Ref: "a.txt"})
	if _, v := o.sender().Send(t.Context(), delivered(in, 0)); v.Kind != delivery.Delivered {
		t.Fatalf("%+v\n%s", v, o.log.String())
	}
	m := o.only()
	at := "inbox/" + string(in.Turn.ID) + "/"
	want := map[string][]byte{at + "a.txt": small, at + "b.bin": large, at + "empty": {}, at + "x_": small, at + "A-2.TXT": small}
	got := o.stored()
	for i, f := range m.Files {
		if f.Reason != "" || !bytes.Equal(got[f.Path], want[f.Path]) || f.Size != int64(len(want[f.Path])) {
			t.Errorf("%d: %+v has %d bytes", i, f, len(got[f.Path]))
		}
	}
	if len(got) != len(want) || m.Workspace != "ws_1" || m.Text != "see" {
		t.Errorf("%d files, %+v", len(got), m)
	}
	begins := "see\n\nFiles of this message:\n- " + at + "a.txt ("
	if text := o.turns()[0].Text; !strings.HasPrefix(text, begins) || !strings.Contains(text, "(text/plain, 3 bytes)") {
		t.Errorf("%q", text)
	}
	if left, err := os.ReadDir(filepath.Join(o.dir, schemas.UploadsFolder)); err != nil || len(left) != 0 {
		t.Errorf("%d parts are left, %v", len(left), err)
	}
}

// inBucket moves the workspace to S3, to which a worker has access.
func (o *office) inBucket(room *worker.Room) workspacefs.FS {
	s := s3test.Memory(o.t, "files")
	open := func() (workspacefs.FS, error) {
		b, err := bucket.Open(bucket.Options{Bucket: "files", Prefix: "w/", Endpoint: s.URL, PathStyle: true,
			Credentials: bucket.Static(s3test.Key, s3test.Secret, "")})
		if err != nil {
			return nil, err
		}
		return b.Files(), nil
	}
	o.where.Storage = "s3"
	o.run("files on S3", func(ctx context.Context) error {
		(&worker.Server{Bus: o.bus, Place: streams.FilesInBucket, Room: room, Log: slog.New(slog.DiscardHandler),
			Open: func(context.Context, schemas.AccountID, schemas.WorkspaceID) (workspacefs.FS, error) { return open() }}).Run(ctx)
		return nil
	})
	testwait.Eventually(o.t, "a worker answers for files on S3", func() bool {
		_, err := Workers(o.bus)(account, o.where).Stat(o.t.Context(), "none")
		return errors.Is(err, schemas.ErrNotFound)
	})
	fsys, err := open()
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = fsys.Close() })
	return fsys
}

// Files are stored in a bucket as in a folder. A file for which there is no room is reported with the reason.
func TestFilesOfAMessageAreStoredOnS3(t *testing.T) {
	o := newOffice(t)
	fsys := o.inBucket(&worker.Room{Files: 10, Bytes: 3 * schemas.MaxFileChunk, FileSize: 2*schemas.MaxFileChunk + 1})
	small, large := content(3), content(2*schemas.MaxFileChunk+1)
	in := o.message(1, "see", o.put("larger", content(2*schemas.MaxFileChunk+2)), o.put("a.txt", small), o.put("b.bin", large),
		o.put("no room", content(schemas.MaxFileChunk)))
	for range 2 { // as when its acknowledgement was lost
		if _, v := o.sender().Send(t.Context(), delivered(in, 0)); v.Kind != delivery.Delivered {
			t.Fatalf("%+v\n%s", v, o.log.String())
		}
	}
	m := o.only()
	for i, want := range [][]byte{small, large} {
		f := m.Files[1+i]
		got, _, err := workspacefs.ReadFile(t.Context(), fsys, f.Path, 1<<20+100)
		if err != nil || !bytes.Equal(got, want) || f.Reason != "" {
			t.Errorf("%+v has %d bytes, %v", f, len(got), err)
		}
	}
	if !strings.Contains(m.Files[0].Reason, "--s3-file-size") || !strings.Contains(m.Files[3].Reason, "--s3-bytes") || m.Workspace != "ws_1" {
		t.Errorf("%+v", m)
	}
	err := fsys.ReadDir(t.Context(), schemas.UploadsFolder, false, func(e workspacefs.Entry) error {
		t.Errorf("%s is left", e.Name)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

//guarantee:a-message-of-a-chat-counts-once
func TestWhyFilesAreNotStored(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(*office)
		file   func(*office) schemas.ChatFile
		reason string
	}{
		"the service says that it is too large": {nil, func(*office) schemas.ChatFile {
			return schemas.ChatFile{Name: "a", Ref: "a", Size: schemas.MaxChatFileSize + 1}
		}, "larger than 20 MB"},
		"it turns out to be too large": {nil, func(o *office) schemas.ChatFile {
			return o.put("a", make([]byte, schemas.MaxChatFileSize+1))
		}, "larger than 20 MB"},
		"Telegram does not give it": {nil, named("big"), "file is too big"},
		"it is gone":                {nil, named("gone"), "has the file no more"},
		"nobody says where it is":   {nil, named(""), "does not say where"},
		"its kind is not taken":     {kinds("image/*"), pdf, "no files of this kind"},
		"no kind is":                {kinds("none"), nothing, "no files of this kind"},
		"the token is not valid":    {func(o *office) { o.chat.Secrets = nil }, nothing, "no bot_token"},
		"the channel is gone":       {func(o *office) { o.chat.ID = "" }, nothing, "gone or disabled"},
		"the channel is disabled":   {func(o *office) { o.chat.Disabled = true }, nothing, "gone or disabled"},
		"the service stays away": {func(o *office) {
			o.fake.Choose(func(*http.Request) chatfake.Fault { return chatfake.ServerError })
		}, nothing, "500"},
		"the connection breaks each time": {func(o *office) {
			o.fake.Choose(func(r *http.Request) chatfake.Fault {
				if strings.HasPrefix(r.URL.Path, "/file/") {
					return chatfake.CommitThenTruncate
				}
				return chatfake.None
			})
		}, func(o *office) schemas.ChatFile { return o.put("a", content(2_000_000)) }, "ended within the file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			in := o.message(1, "see", c.file(o))
			if c.set != nil {
				c.set(o)
			}
			s := o.sender()
			for attempt := range lastTry + 1 {
				_, v := s.Send(t.Context(), delivered(in, attempt))
				if v.Kind == delivery.Delivered {
					break
				}
				if v.Kind != delivery.Failed || len(o.turns()) != 0 {
					t.Fatalf("try %d: %+v", attempt, v)
				}
			}
			m := o.only()
			if f := m.Files[0]; f.Path != "" || !strings.Contains(f.Reason, c.reason) || m.Workspace != "" {
				t.Errorf("%+v", m)
			}
			if text := o.turns()[0].Text; !strings.Contains(text, ": not stored, ") || strings.Contains(text+o.log.String(), "a-secret-of-the-bot") {
				t.Errorf("%q\n%s", text, o.log.String())
			}
			if n := len(o.stored()); n != 0 {
				t.Errorf("%d files are stored", n)
			}
		})
	}
}

// named returns a file of which the service has only the name, or nothing.
func named(ref string) func(*office) schemas.ChatFile {
	return func(*office) schemas.ChatFile { return schemas.ChatFile{Name: "a", Ref: ref} }
}

// pdf is a file whose type follows from its name.
func pdf(o *office) schemas.ChatFile { return o.put("a.pdf", []byte("x")) }

// nothing is an empty file.
func nothing(o *office) schemas.ChatFile { return o.put("a", nil) }

func kinds(setting string) func(*office) {
	return func(o *office) { o.chat.Settings = map[string]string{schemas.SettingFiles: setting} }
}

func TestTheFilesOfAMessageTogetherHaveALimit(t *testing.T) {
	o := newOffice(t)
	const each = 18 << 20
	large := make([]byte, each)
	in := o.message(1, "", o.put("a", large), o.put("b", large), o.put("c", large), o.put("d", []byte("d")))
	if _, v := o.sender().Send(t.Context(), delivered(in, 0)); v.Kind != delivery.Delivered {
		t.Fatalf("%+v\n%s", v, o.log.String())
	}
	m := o.only()
	if m.Files[1].Path == "" || !strings.Contains(m.Files[2].Reason, "together are larger") || m.Files[3].Path == "" || len(o.stored()) != 3 {
		t.Errorf("%+v", m.Files)
	}
}

// A process that crashes between any two effects, or is suspended there while another one takes over, leaves no partial file and no
// duplicate.
//
//guarantee:a-message-of-a-chat-counts-once
func TestDeathAtAnyPlace(t *testing.T) {
	died := errors.New("died")
	chance := rand.New(rand.NewPCG(7, 11))
	o := newOffice(t)
	a, b := content(2*schemas.MaxFileChunk+1), content(5)
	seen := map[stage]int{}
	for n := range 20 {
		in := o.message(n, "see", o.put("a", a), o.put("b", b))
		for tries := 0; ; tries++ {
			s := o.sender()
			s.at = func(at stage) error {
				if tries < 6 && chance.IntN(3) == 0 {
					seen[at]++
					if chance.IntN(4) == 0 { // it is suspended, and another process does all of it
						if _, v := o.sender().Send(t.Context(), delivered(in, 0)); v.Kind != delivery.Delivered {
							t.Errorf("%+v", v)
						}
						return nil
					}
					return died
				}
				return nil
			}
			_, v := s.Send(t.Context(), delivered(in, 0))
			for p, c := range o.stored() {
				if !bytes.Equal(c, a) && !bytes.Equal(c, b) {
					t.Fatalf("%s has %d bytes", p, len(c))
				}
			}
			if v.Kind == delivery.Delivered {
				break
			}
		}
	}
	if turns, events := o.turns(), o.received(); len(turns) != 20 || len(events) != 20 {
		t.Errorf("%d turns, %d events", len(turns), len(events))
	} else {
		for i, f := range turns {
			if !slices.Equal(f.Message.Files, events[i].Files) || f.Message.Files[0].Path == "" || f.Message.Files[1].Path == "" {
				t.Errorf("%+v", f.Message)
			}
		}
	}
	if len(o.stored()) != 40 || seen[atPiece]*seen[atStored]*seen[atMade] == 0 {
		t.Errorf("%d files, %v", len(o.stored()), seen)
	}
}

// A message written after a message with files is passed on after it, but not much later.
func TestMessagesStayInTheirOrder(t *testing.T) {
	o := newOffice(t)
	var broken bool
	first := o.message(1, "look at this", o.put("a", []byte("a")))
	second := o.message(2, "what is it?")
	second.After = first.Turn.ID
	s := o.sender()
	o.fake.Choose(func(*http.Request) chatfake.Fault {
		if broken {
			return chatfake.ServerError
		}
		return chatfake.None
	})
	broken = true
	if _, v := s.Send(t.Context(), delivered(first, 0)); v.Kind != delivery.Failed {
		t.Fatalf("%+v", v)
	}
	if _, v := s.Send(t.Context(), delivered(second, 0)); v.Kind != delivery.Busy {
		t.Fatalf("%+v", v)
	}
	broken = false
	for _, in := range []schemas.Incoming{first, second} {
		if _, v := s.Send(t.Context(), delivered(in, 0)); v.Kind != delivery.Delivered {
			t.Fatalf("%+v", v)
		}
	}
	turns := o.turns()
	if len(turns) != 2 || turns[0].Message.Text != "look at this" || turns[1].Text != "what is it?" {
		t.Errorf("%+v", turns)
	}
	third := o.message(3, "hello?")
	third.After = "in_lost"
	d := delivered(third, 0)
	if _, v := s.Send(t.Context(), d); v.Kind != delivery.Busy {
		t.Errorf("%+v", v)
	}
	d.Created = d.Created.Add(-schemas.FilesWithin - time.Second)
	if _, v := s.Send(t.Context(), d); v.Kind != delivery.Delivered {
		t.Errorf("it waits for ever: %+v", v)
	}
}

// After a rate limit the service is asked again at the time that it requests. If that is too late, the message is passed on without the
// file.
func TestALimitIsWaitedFor(t *testing.T) {
	o := newOffice(t)
	in := o.message(1, "see", o.put("a", []byte("a")))
	o.fake.Fail(chatfake.TooMany)
	if _, v := o.sender().Send(t.Context(), delivered(in, 0)); v.Kind != delivery.Failed || v.After < chatfake.FaultWait {
		t.Fatalf("%+v", v)
	}
	if _, wait := verdict(&channel.Error{Outcome: channel.Limited, After: time.Hour}, false); wait != 0 {
		t.Error("it is waited for an hour")
	}
}

// One account or channel cannot occupy all slots.
func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	var p places
	n := 0
	for i := range 10 {
		for range 10 {
			if p.enter("acct_1", schemas.ChannelID(fmt.Sprint("chan_", i))) {
				n++
			}
		}
	}
	if n != mostOfAccount || !p.enter("acct_2", "chan_x") {
		t.Errorf("%d", n)
	}
}

// End to end: through the stream, by a deliverer, with a worker that crashes meanwhile.
func TestDelivererOfFiles(t *testing.T) {
	o := newOffice(t)
	s := o.sender()
	o.fake.Fail(chatfake.CommitThenTruncate, chatfake.Drop)
	in := o.message(1, "see", o.put("a", content(100_000)))
	if err := lifecycle.Deliver(t.Context(), o.bus, schemas.IncomingDelivery(in)); err != nil {
		t.Fatal(err)
	}
	o.run("deliverer", (&delivery.Deliverer{
		Bus: o.bus, Channel: schemas.InboxChannel, Sender: s, Slots: Slots, Grace: time.Second,
		Waits: []time.Duration{0, time.Millisecond, time.Millisecond, time.Millisecond},
	}).Run)
	testwait.Eventually(t, "the message is there", func() bool { return len(o.received()) == 1 })
	if m := o.only(); m.Files[0].Path == "" || len(o.stored()) != 1 {
		t.Errorf("%+v\n%s", m, o.log.String())
	}
}

func TestWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		setting, kind string
		want          bool
	}{
		{"", "", true}, {" ", "x/y", true}, {"*", "", true}, {"image/*", "image/png", true}, {"image/*", "imageish/png", false},
		{"image/*, application/pdf", "application/pdf", true},
		{"IMAGE/PNG", "image/png", true}, {"none", "image/png", false}, {"image/*", "", false},
	} {
		if got := wanted(c.setting, c.kind); got != c.want {
			t.Errorf("%q of %q: %v", c.kind, c.setting, got)
		}
	}
	if kindOf("text/plain; charset=utf-8", "a.png") != "text/plain" || kindOf("", "a.PNG") != "image/png" || kindOf("", "a") != "" {
		t.Error("the kind of a file is another")
	}
}
