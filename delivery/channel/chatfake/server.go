package chatfake

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Message is a message that a double stores.
type Message struct {
	ID    string    `json:"id"`
	Place string    `json:"place"` // the chat, optionally with a thread
	Text  string    `json:"text"`
	Plain bool      `json:"plain,omitzero"` // sent without markup
	Reply string    `json:"reply,omitzero"` // id of the message that it answers
	File  *File     `json:"file,omitzero"`
	Press []Button  `json:"buttons,omitzero"`
	Nonce string    `json:"nonce,omitzero"`
	Edits int       `json:"edits,omitzero"`
	At    time.Time `json:"at"`
}

// File is a file attached to a message.
type File struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Data []byte `json:"data"`
}

// Button is a button under a message.
type Button struct {
	Label string `json:"label"`
	Data  string `json:"data"`
}

// Mark is a request other than a message: typing, a reaction, a setting.
type Mark struct {
	Kind  string `json:"kind"`
	Place string `json:"place"`
	On    string `json:"on,omitzero"` // a message's id
	What  string `json:"what,omitzero"`
}

// Server is a double's HTTP server with its state. It is safe for concurrent use; its fields must not change once it serves.
type Server struct {
	// Service handles the requests that have no fault, or a fault that commits. It stores the messages that it accepts with Add.
	Service http.Handler
	Words   Words
	// Now is the clock of rate limits and messages. Nil: this process's clock.
	Now func() time.Time
	// Kept is called for each message that is added or changed. It may be nil. It is called concurrently, and must not call the Server.
	Kept func(Message)

	mu       sync.Mutex
	faults   []Fault
	choose   func(*http.Request) Fault
	messages []Message
	marks    []Mark
	rates    map[string]*bucket
	requests int
	last     int
	closed   chan struct{}
	put      map[string]put
}

// put is a double's response to requests for a path.
type put struct {
	reply   Reply
	allowed func(*http.Request) bool
}

// Put sets a double's response to GET requests for a path, as for a file, if allowed accepts the request (nil: all). A name without a
// slash matches every path that ends with it.
func (s *Server) Put(at string, r Reply, allowed func(*http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.put == nil {
		s.put = map[string]put{}
	}
	r.Header = maps.Clone(r.Header)
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Length", strconv.Itoa(len(r.Body)))
	s.put[at] = put{r, allowed}
}

// file returns the response to a request for a file; false if there is no such file.
func (s *Server) file(r *http.Request) (Reply, bool) {
	s.mu.Lock()
	p, ok := s.put[r.URL.Path]
	s.mu.Unlock()
	if !ok {
		s.mu.Lock()
		p, ok = s.put[path.Base(r.URL.Path)]
		s.mu.Unlock()
	}
	if !ok || r.Method != http.MethodGet {
		return Reply{}, false
	}
	if p.allowed != nil && !p.allowed(r) {
		return Reply{Status: http.StatusForbidden}, true
	}
	return p.reply, true
}

type bucket struct {
	left int
	ends time.Time
}

func (s *Server) clock() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// Fail applies the faults to the next requests, one each.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Choose sets a function that chooses the fault of each request after those of [Server.Fail] are used up. Nil: no faults.
func (s *Server) Choose(choose func(*http.Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose = choose
}

func (s *Server) next(r *http.Request) Fault {
	s.mu.Lock()
	s.requests++
	choose := s.choose
	if len(s.faults) > 0 {
		f := s.faults[0]
		s.faults = s.faults[1:]
		s.mu.Unlock()
		return f
	}
	s.mu.Unlock()
	if choose == nil {
		return None
	}
	return choose(r)
}

// Requests returns how many requests have arrived.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// NextID returns a number that no message has had.
func (s *Server) NextID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.last
}

// Add stores a message, with the current time.
func (s *Server) Add(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.At = s.clock()
	s.messages = append(s.messages, m)
	s.notify(m)
}

// notify passes a message to Kept. The lock is held, so that messages are passed in order.
func (s *Server) notify(m Message) {
	if s.Kept != nil {
		s.Kept(m)
	}
}

// AddOnce stores a message, unless there is one with the same place and nonce that is younger than window; then it returns that one and
// false.
func (s *Server) AddOnce(m Message, window time.Duration) (kept Message, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for _, old := range s.messages {
		if m.Nonce != "" && old.Nonce == m.Nonce && old.Place == m.Place && now.Sub(old.At) < window {
			return old, false
		}
	}
	m.At = now
	s.messages = append(s.messages, m)
	s.notify(m)
	return m, true
}

// Change changes a message with the function change, and reports whether the message exists.
func (s *Server) Change(place, id string, change func(*Message)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.messages, func(m Message) bool { return m.ID == id && m.Place == place })
	if i < 0 {
		return false
	}
	change(&s.messages[i])
	s.notify(s.messages[i])
	return true
}

// Remove removes a message.
func (s *Server) Remove(place, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = slices.DeleteFunc(s.messages, func(m Message) bool { return m.ID == id && m.Place == place })
}

// Messages returns the stored messages, oldest first.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// Note stores a mark.
func (s *Server) Note(m Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = append(s.marks, m)
}

// Marks returns the stored marks, oldest first.
func (s *Server) Marks() []Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.marks)
}

// Take takes one of the events that key's rate limit allows in each per. It returns how many are left and how long until the limit is
// reset; ok is false if none was left.
func (s *Server) Take(key string, events int, per time.Duration) (left int, after time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rates == nil {
		s.rates = map[string]*bucket{}
	}
	now := s.clock()
	b := s.rates[key]
	if b == nil || !now.Before(b.ends) {
		b = &bucket{left: events, ends: now.Add(per)}
		s.rates[key] = b
	}
	after = b.ends.Sub(now)
	if b.left == 0 {
		return 0, after, false
	}
	b.left--
	return b.left, after, true
}

// Close ends hanging requests. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing():
	default:
		close(s.closed)
	}
}

// closing returns the channel that [Server.Close] closes. The lock is held.
func (s *Server) closing() chan struct{} {
	if s.closed == nil {
		s.closed = make(chan struct{})
	}
	return s.closed
}

// Show responds with the stored messages and marks as JSON, for people.
func (s *Server) Show(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(struct {
		Messages []Message `json:"messages"`
		Marks    []Mark    `json:"marks"`
	}{s.Messages(), s.Marks()}); err != nil {
		fmt.Fprintln(w, "cannot be shown")
	}
}
