package channeltest

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

func (f *fixture) receiver(t *testing.T) (channel.Receiver, bool) {
	t.Helper()
	r, ok := f.adapter.(channel.Receiver)
	if ok && (f.Sign == nil || len(f.Reads) == 0) {
		t.Fatal("the harness has no requests for a receiver")
	}
	return r, ok
}

func verifies(t *testing.T, f *fixture) {
	a, ok := f.receiver(t)
	if !ok {
		return
	}
	now := time.Unix(1_764_000_000, 0)
	r := f.Sign(f.Reads[0].Body, now)
	for _, at := range []time.Time{now, now.Add(4 * time.Minute), now.Add(-4 * time.Minute)} {
		if err := a.Verify(r, f.To, at); err != nil {
			t.Errorf("%s later: %v", at.Sub(now), err)
		}
	}
	for _, at := range []time.Time{now.Add(6 * time.Minute), now.Add(-6 * time.Minute), now.AddDate(10, 0, 0)} {
		if err := a.Verify(r, f.To, at); (err != nil) != f.Stale {
			t.Errorf("%s later: %v", at.Sub(now), err)
		}
	}
}

// refuses checks that requests are refused which are corrupted in the ways common to all services and in those of the harness.
func refuses(t *testing.T, f *fixture) {
	a, ok := f.receiver(t)
	if !ok {
		return
	}
	now := time.Unix(1_764_000_000, 0)
	spoilt := map[string]func(*channel.Request){
		"nothing is signed": func(r *channel.Request) { r.Header, r.Query = nil, nil },
		"each value is empty": func(r *channel.Request) {
			for k := range r.Header {
				r.Header[k] = []string{""}
			}
			for k := range r.Query {
				r.Query[k] = []string{""}
			}
		},
		"each value is cut": func(r *channel.Request) {
			for k, v := range r.Header {
				r.Header[k] = []string{v[0][:len(v[0])-1]}
			}
			for k, v := range r.Query {
				r.Query[k] = []string{v[0][:len(v[0])-1]}
			}
		},
	}
	maps.Copy(spoilt, f.Refused)
	for name, spoil := range spoilt {
		r := f.Sign(f.Reads[0].Body, now)
		spoil(&r)
		err := a.Verify(r, f.To, now)
		if schemas.CodeOf(err) != schemas.Denied {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			f.clean(t, err.Error())
		}
	}
	lacking := f.To
	lacking.Credential = f.Lacking
	if err := a.Verify(f.Sign(f.Reads[0].Body, now), lacking, now); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("without what it is verified by: %v", err)
	}
}

func reads(t *testing.T, f *fixture) {
	a, ok := f.receiver(t)
	if !ok {
		return
	}
	now := time.Unix(1_764_000_000, 0)
	kinds := map[channel.InboundKind]bool{}
	for _, c := range f.Reads {
		r := f.Sign(c.Body, now)
		if err := a.Verify(r, f.To, now); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		before := bytes.Clone(r.Body)
		got, err := a.Read(r, f.To)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		again, err := a.Read(r, f.To)
		if err != nil || !reflect.DeepEqual(got, again) || !bytes.Equal(before, r.Body) {
			t.Errorf("%s: reading it twice differs", c.Name)
		}
		kinds[got.Kind] = true
		f.compare(t, c, got)
	}
	if !kinds[channel.Text] || !kinds[channel.Ignored] {
		t.Errorf("the harness has only %v", kinds)
	}
	for _, body := range []string{"", "{", "[]", "null", `"x"`, "\xff"} {
		if got, err := a.Read(f.Sign(body, now), f.To); err == nil && got.Kind != channel.Ignored {
			t.Errorf("%q is %+v", body, got)
		}
	}
}

func (f *fixture) compare(t *testing.T, c Read, got channel.Inbound) {
	t.Helper()
	switch got.Kind {
	case channel.Handshake:
	case channel.Text, channel.Pressed:
		if got.Event == "" || got.Conversation == "" || got.Place == "" || got.User == "" || got.Message == "" {
			t.Errorf("%s: %+v lacks a name", c.Name, got)
		}
		if _, err := f.adapter.Destination(got.Route); err != nil {
			t.Errorf("%s: its route leads nowhere: %v", c.Name, err)
		}
	case channel.Ignored:
		if got.Why == "" {
			t.Errorf("%s: nobody knows why it is ignored", c.Name)
		}
	}
	if c.Want.Route == nil {
		got.Route = nil
	} else if !sameJSON(c.Want.Route, got.Route) {
		t.Errorf("%s: route %s, want %s", c.Name, got.Route, c.Want.Route)
	}
	c.Want.Route, got.Route = nil, nil
	if c.Want.Why == "" {
		got.Why = ""
	}
	if c.Want.Answer.Body == nil && c.Want.Answer.Status == 0 {
		got.Answer = channel.Answer{}
	}
	if c.Want.Unheard.Body == nil {
		got.Unheard = channel.Answer{}
	}
	if !reflect.DeepEqual(c.Want, got) {
		t.Errorf("%s:\n got %+v\nwant %+v", c.Name, got, c.Want)
	}
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// simulates checks that a simulated request is accepted like one of the service, and is a different one each time.
func simulates(t *testing.T, f *fixture) {
	a, ok := f.adapter.(channel.Simulator)
	if !ok {
		return
	}
	receiver, _ := f.receiver(t)
	i := slices.IndexFunc(f.Reads, func(r Read) bool { return r.Want.Kind == channel.Text })
	said := channel.Said{Place: f.Reads[i].Want.Place, User: f.Reads[i].Want.User, Text: "/run echo \"a\"\n<b> & *c* \u00e4"}
	now := time.Unix(1_764_000_000, 0)
	events := map[string]bool{}
	for range 3 {
		now = now.Add(time.Millisecond)
		r, err := a.Simulate(f.To, said, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.Verify(r, f.To, now); err != nil {
			t.Errorf("not verified: %v", err)
		}
		in, err := receiver.Read(r, f.To)
		same := in.Kind == channel.Text && in.Place == said.Place && in.User == said.User && in.Text == said.Text
		if err != nil || !same || in.Conversation == "" {
			t.Errorf("%+v, %v", in, err)
		}
		if _, err := f.adapter.Destination(in.Route); err != nil {
			t.Errorf("its route %s is none: %v", in.Route, err)
		}
		events[in.Event] = true
	}
	if len(events) != 3 {
		t.Errorf("three messages are %d events", len(events))
	}
	if _, err := a.Simulate(f.To, channel.Said{Text: "a"}, now); schemas.CodeOf(err) != schemas.Invalid {
		t.Errorf("no place: %v", err)
	}
	said.Files = []string{"a b.txt"}
	r, err := a.Simulate(f.To, said, now)
	if err != nil {
		t.Fatal(err)
	}
	if in, err := receiver.Read(r, f.To); err != nil || len(in.Files) != 1 || in.Files[0].Ref == "" {
		t.Errorf("with a file it is %+v, %v", in, err)
	}
	to := f.To
	to.Credential = f.Lacking
	if r, err := a.Simulate(to, said, now); err == nil && receiver.Verify(r, to, now) == nil {
		t.Error("it is verified without a secret")
	}
}
