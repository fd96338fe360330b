package channeltest

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *fixture){
		"a profile is honest":                            profile,
		"a message arrives":                              sends,
		"messages arrive from many goroutines":           concurrent,
		"a message as long as the limit arrives":         limits,
		"an answer names what it answers":                replies,
		"buttons arrive":                                 buttons,
		"a file arrives":                                 files,
		"editing twice is editing once":                  edits,
		"typing and reactions":                           marks,
		"a credential is checked":                        checks,
		"webhooks are registered":                        registers,
		"a destination is a pure function of a route":    destinations,
		"a route that is none is refused":                badRoutes,
		"a service that is away got nothing":             away,
		"a wrong credential is refused":                  wrongCredential,
		"a message with a key is sent once":              once,
		"a message that may have arrived is looked for":  finds,
		"each fault has its outcome":                     faults,
		"no fault of any request shows a secret":         secrets,
		"a request that nobody answers ends with ctx":    hangs,
		"requests of the service are verified":           verifies,
		"requests that are not the service's are denied": refuses,
		"what comes in is understood":                    reads,
		"what is made up is taken as what comes in":      simulates,
		"a file that was sent is fetched, or not at all": fetchesFiles,
		"nobody but the service is asked for a file":     fetchesElsewhere,
		"a file that never comes ends with ctx":          fetchHangs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h.open(t))
		})
	}
}

func hook() *url.URL {
	return &url.URL{Scheme: "https", Host: "sandjet.example.com", Path: "/webhooks/acc_1/chat"}
}

func profile(t *testing.T, f *fixture) {
	p := f.adapter.Profile()
	if p.Kind == "" || p.Format == "" || p.Limit < 1 || p.Unit == "" || len(p.Secrets) == 0 || p.Caption > p.Limit {
		t.Errorf("%+v leaves out what everybody asks for", p)
	}
	if _, ok := f.adapter.(channel.Finder); ok != (p.Once == channel.OnceByLook) && !ok {
		t.Errorf("it says that messages are looked for, and is no Finder")
	}
	if p.Once != channel.OnceByKey && p.Once != channel.OnceByLook && p.Once != channel.OnceNever {
		t.Errorf("nobody knows what keeps a message from being sent twice: %q", p.Once)
	}
	for _, s := range p.Secrets {
		if s.Name == "" || s.About == "" {
			t.Errorf("%+v does not say where it is found", s)
		}
		if s.Required && f.To.Credential[s.Name] == "" {
			t.Errorf("the harness lacks %s", s.Name)
		}
	}
	for _, pace := range p.Pace {
		if pace.Events < 1 || pace.Per <= 0 || pace.Of != channel.PerCredential && pace.Of != channel.PerDestination {
			t.Errorf("%+v is no limit", pace)
		}
	}
}

func sends(t *testing.T, f *fixture) {
	r := f.send(t, f.message())
	list := f.fake.Messages()
	if len(list) != 1 || list[0].Text != "hello" || list[0].Place != f.Place || list[0].ID != r.ID || r.ID == "" || list[0].Reply != "" {
		t.Errorf("%+v of %+v", r, list)
	}
}

func concurrent(t *testing.T, f *fixture) {
	const n = 20
	var wg sync.WaitGroup
	ids := make(chan string, n)
	for i := range n {
		wg.Go(func() {
			m := f.message()
			m.Key += "." + strings.Repeat("x", i)
			r, err := f.adapter.Send(t.Context(), f.To, m)
			if err != nil {
				t.Error(err)
			}
			ids <- r.ID
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	if len(seen) != n || len(f.fake.Messages()) != n {
		t.Errorf("%d ids of %d messages", len(seen), len(f.fake.Messages()))
	}
}

// limits sends a text of exactly the profile's limit, mostly of a rune whose length differs between the units, and one that exceeds it.
func limits(t *testing.T, f *fixture) {
	p := f.adapter.Profile()
	each := map[channel.Unit]int{channel.UTF16: 2, channel.CodePoints: 1, channel.Bytes: 4}[p.Unit]
	m := f.message()
	m.Text = strings.Repeat("😀", p.Limit/each) + strings.Repeat("a", p.Limit%each)
	m.Plain = m.Text
	f.send(t, m)
	m.Text, m.Plain, m.Key = m.Text+"a", m.Plain+"a", m.Key+".2"
	_, err := f.adapter.Send(t.Context(), f.To, m)
	if err == nil {
		t.Fatal("the double takes more than the limit")
	}
	if e := f.safe(t, err); e.Outcome != channel.Refused {
		t.Errorf("%v", e)
	}
}

func replies(t *testing.T, f *fixture) {
	m := f.message()
	m.Reply = true
	r := f.send(t, m)
	if list := f.fake.Messages(); len(list) != 1 || list[0].ID != r.ID || list[0].Text != "hello" {
		t.Errorf("%+v", list)
	}
}

func buttons(t *testing.T, f *fixture) {
	m := f.message()
	data := strings.Repeat("d", 64)
	m.Buttons = []channel.Button{{Label: "Approve", Data: data, Style: channel.Approve}, {Label: "Deny", Data: "n:1", Style: channel.Deny}}
	if !f.adapter.Profile().Buttons {
		_, err := f.adapter.Send(t.Context(), f.To, m)
		if err == nil || f.safe(t, err).Outcome != channel.Refused || len(f.fake.Messages()) != 0 {
			t.Errorf("a service without buttons took them: %v", err)
		}
		return
	}
	f.send(t, m)
	list := f.fake.Messages()
	if len(list) != 1 || len(list[0].Press) != 2 || list[0].Press[0].Label != "Approve" || list[0].Press[0].Data != data {
		t.Errorf("%+v", list)
	}
}

func files(t *testing.T, f *fixture) {
	m := f.message()
	m.File = &channel.File{Name: "a \"b\"\r\nX: y.md", Type: "text/markdown", Data: []byte("# 😀\r\n--x")}
	if f.adapter.Profile().MaxFile == 0 {
		_, err := f.adapter.Send(t.Context(), f.To, m)
		if err == nil || f.safe(t, err).Outcome != channel.Refused || len(f.fake.Messages()) != 0 {
			t.Errorf("a service without files took one: %v", err)
		}
		return
	}
	f.send(t, m)
	m.Text, m.Plain, m.Key = "", "", m.Key+".2"
	f.send(t, m)
	list := f.fake.Messages()
	if len(list) != 2 || list[0].Text != "hello" || list[1].Text != "" {
		t.Fatalf("%+v", list)
	}
	for _, kept := range list {
		if kept.File == nil || !bytes.Equal(kept.File.Data, m.File.Data) || strings.ContainsAny(kept.File.Name, "\r\n") {
			t.Errorf("%+v", kept.File)
		}
	}
}

func edits(t *testing.T, f *fixture) {
	a, ok := f.adapter.(channel.Editor)
	if !ok {
		return
	}
	r := f.send(t, f.message())
	m := f.message()
	m.Text, m.Plain = "other", "other"
	for range 2 {
		if err := a.Edit(t.Context(), f.To, r.ID, m); err != nil {
			t.Fatal(err)
		}
	}
	if list := f.fake.Messages(); len(list) != 1 || list[0].Text != "other" {
		t.Errorf("%+v", list)
	}
	if f.adapter.Profile().Buttons { // an edit replaces the buttons
		asked := f.message()
		asked.Key, asked.Buttons = asked.Key+".3", []channel.Button{{Label: "Yes", Data: "y:1"}}
		r := f.send(t, asked)
		if err := a.Edit(t.Context(), f.To, r.ID, m); err != nil {
			t.Fatal(err)
		}
		if list := f.fake.Messages(); len(list) != 2 || list[1].Text != "other" || len(list[1].Press) != 0 {
			t.Errorf("%+v", list)
		}
	}
	err := a.Edit(t.Context(), f.To, "999999", m)
	if err == nil || f.safe(t, err).Outcome != channel.Refused {
		t.Errorf("a message that is not there: %v", err)
	}
}

func marks(t *testing.T, f *fixture) {
	want := 0
	if a, ok := f.adapter.(channel.Typist); ok {
		want++
		if err := a.Typing(t.Context(), f.To); err != nil {
			t.Error(err)
		}
	}
	if a, ok := f.adapter.(channel.Reactor); ok {
		want++
		if err := a.React(t.Context(), f.To); err != nil {
			t.Error(err)
		}
	}
	if got := f.fake.Marks(); len(got) != want || len(f.fake.Messages()) != 0 {
		t.Errorf("%+v", got)
	}
}

func checks(t *testing.T, f *fixture) {
	a, ok := f.adapter.(channel.Checker)
	if !ok {
		return
	}
	about, err := a.Check(t.Context(), f.To)
	if err != nil || about == "" || len(f.fake.Messages()) != 0 {
		t.Errorf("%q %v", about, err)
	}
	f.clean(t, about)
}

func registers(t *testing.T, f *fixture) {
	a, ok := f.adapter.(channel.Registrar)
	if !ok {
		return
	}
	for range 2 {
		if err := a.Register(t.Context(), f.To, hook()); err != nil {
			t.Fatal(err)
		}
	}
	found := false
	for _, m := range f.fake.Marks() {
		found = found || m.Kind == "webhook" && m.What == hook().String()
	}
	if !found {
		t.Errorf("%+v", f.fake.Marks())
	}
}

func destinations(t *testing.T, f *fixture) {
	seen := map[string]bool{}
	for _, route := range append([]json.RawMessage{f.To.Route}, f.Elsewhere...) {
		one, err := f.adapter.Destination(route)
		two, err2 := f.adapter.Destination(bytes.Clone(route))
		if err != nil || err2 != nil || one != two || one == "" || seen[one] {
			t.Errorf("%s: %q %q %v %v", route, one, two, err, err2)
		}
		f.clean(t, one)
		seen[one] = true
	}
	if f.fake.Requests() != 0 {
		t.Error("it asked the service")
	}
}

func badRoutes(t *testing.T, f *fixture) {
	for _, route := range append(f.BadRoutes, nil, []byte("{"), []byte("[]"), []byte("{}"), []byte("null"), []byte(`"x"`)) {
		if name, err := f.adapter.Destination(route); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%s: %q %v", route, name, err)
		}
		to := f.To
		to.Route = route
		_, err := f.adapter.Send(t.Context(), to, f.message())
		if err == nil || f.safe(t, err).Outcome != channel.Refused {
			t.Errorf("%s: %v", route, err)
		}
	}
	if f.fake.Requests() != 0 {
		t.Error("it asked the service")
	}
}

func away(t *testing.T, f *fixture) {
	f.http.Close()
	for name, op := range f.operations(f.To) {
		if err := op(t.Context()); err == nil || f.safe(t, err).Outcome != channel.NotSent {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func wrongCredential(t *testing.T, f *fixture) {
	to := f.To
	to.Credential = map[string]string{}
	_, err := f.adapter.Send(t.Context(), to, f.message())
	if err == nil {
		t.Fatal("it was sent without a credential")
	}
	if e := f.safe(t, err); e.Outcome != channel.Refused || !e.Credential || f.fake.Requests() != 0 {
		t.Errorf("%+v", e)
	}
}

func once(t *testing.T, f *fixture) {
	if f.adapter.Profile().Once != channel.OnceByKey {
		return
	}
	one, two := f.send(t, f.message()), f.send(t, f.message())
	if one.ID != two.ID || len(f.fake.Messages()) != 1 {
		t.Errorf("%q %q %+v", one.ID, two.ID, f.fake.Messages())
	}
}

func finds(t *testing.T, f *fixture) {
	a, ok := f.adapter.(channel.Finder)
	if !ok {
		return
	}
	since := time.Now().Add(-time.Minute)
	if r, found, err := a.Find(t.Context(), f.To, f.message().Key, since); err != nil || found {
		t.Errorf("%+v %v %v", r, found, err)
	}
	other := f.message()
	other.Key += ".other"
	f.send(t, other)
	sent := f.send(t, f.message())
	if r, found, err := a.Find(t.Context(), f.To, f.message().Key, since); err != nil || !found || r.ID != sent.ID {
		t.Errorf("%+v %v %v", r, found, err)
	}
	if r, found, err := a.Find(t.Context(), f.To, f.message().Key+".3", since); err != nil || found {
		t.Errorf("%+v %v %v", r, found, err)
	}
}
