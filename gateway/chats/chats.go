// Package chats handles the messages of chat services: requests of the services, simulated messages, and the commands that concern a
// conversation.
package chats

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/channels"
	"github.com/sandjet/sandjet/gateway/inbound"
	"github.com/sandjet/sandjet/gateway/jobs"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Options are the settings of [Chats].
type Options struct {
	// Inbound is the handler of messages, without Calls, Stop and Running. Without Channels or a Receiver no messages are taken.
	Inbound inbound.Handler
	Bus     *streams.Bus
	Calls   *calls.Calls
	Jobs    *jobs.Jobs
}

// Chats has the HTTP handlers. It is safe for concurrent use.
type Chats struct {
	o       Options
	inbound *inbound.Handler // nil: no messages are taken
}

// New returns the handlers.
func New(o Options) *Chats {
	h := &Chats{o: o}
	if o.Inbound.Channels == nil || o.Inbound.Receiver == nil {
		return h
	}
	in := o.Inbound
	in.Calls, in.Stop, in.Running = o.Calls.Admitter(""), h.stopAll, h.running
	h.inbound = &in
	return h
}

// mostInChat is how many calls and jobs of a conversation a command considers, the newest first.
const mostInChat = 100

// PostInbound handles a request of a chat service.
func (h *Chats) PostInbound(w http.ResponseWriter, r *http.Request) error {
	if h.inbound == nil {
		return errOff()
	}
	return h.inbound.Post(w, r)
}

// PostSimulate handles a simulated message.
func (h *Chats) PostSimulate(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if h.inbound == nil {
		return errOff()
	}
	var said channel.Said
	if err := web.DecodeBody(w, r, false, &said); err != nil {
		return err
	}
	if said.Text == "" && len(said.Files) == 0 {
		return schemas.Invalidf("text", "is missing: say what the user is to have written")
	}
	if len(said.Files) > schemas.MaxChatFiles {
		return schemas.Invalidf("files", "are %d: at most %d", len(said.Files), schemas.MaxChatFiles)
	}
	done, err := h.inbound.Simulate(r.Context(), a, string(channels.ID(r)), said)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, done)
	return nil
}

func errOff() error {
	return schemas.Errorf(schemas.Unsupported, "this gateway takes no messages of chats")
}

// openIn returns the calls of a conversation that have not ended, and its jobs that have not.
func (h *Chats) openIn(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) (
	open []schemas.CallSummary, running []schemas.Job, err error,
) {
	recent, _, err := h.o.Calls.Recent(ctx, a, "", mostInChat, func(c schemas.Call) bool { return c.Conversation == conv })
	if err != nil {
		return nil, nil, err
	}
	for _, c := range recent {
		if c.Finished.IsZero() {
			open = append(open, c)
		}
	}
	found, err := h.o.Jobs.Find(ctx, a, func(j schemas.Job) bool { return j.Conversation == conv && !j.State.Final() }, mostInChat)
	return open, found.Jobs, err
}

// running describes, for people, the calls and jobs that run in a conversation.
func (h *Chats) running(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) ([]string, error) {
	open, running, err := h.openIn(ctx, a, conv)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, c := range open {
		list = append(list, fmt.Sprintf("%s `%s`: %s", c.Tool, c.Summary, c.Status))
	}
	for _, j := range running {
		list = append(list, fmt.Sprintf("job `%s`: %s", j.ID, j.State))
	}
	return list, nil
}

// stopAll requests the cancellation of all calls and jobs of a conversation, and returns their number.
func (h *Chats) stopAll(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) (int, error) {
	const reason = "stopped in the chat"
	open, running, err := h.openIn(ctx, a, conv)
	if err != nil {
		return 0, err
	}
	n := 0
	ended := func(err error) error {
		if err == nil {
			n++
		}
		if errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrConflict) { // it has ended meanwhile
			return nil
		}
		return err
	}
	for _, c := range open {
		call, err := h.o.Bus.Calls().Find(ctx, a, c.ID)
		if err == nil {
			err = h.o.Calls.Cancel(ctx, call, admission.Channel, reason)
		}
		if err := ended(err); err != nil {
			return n, err
		}
	}
	for _, j := range running {
		if j.State == schemas.JobWaiting {
			continue // its call was among them
		}
		_, err := lifecycle.ControlJob(ctx, h.o.Bus, schemas.JobCommand{Account: a, Job: j.ID, Action: schemas.JobActionStop, Reason: reason})
		if err := ended(err); err != nil {
			return n, err
		}
	}
	return n, nil
}
