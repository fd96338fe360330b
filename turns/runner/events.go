package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/turns"
)

// event returns an event about a turn.
func (c *carrying) event(t schemas.EventType, id string, subject schemas.TurnID, at time.Time, data any) (schemas.Event, error) {
	b, err := schemas.EncodeJSON(data)
	return schemas.Event{
		SpecVersion: "1.0", ID: id, Type: t, Source: schemas.AccountSource(c.account), Subject: string(subject), Time: at.UTC(),
		Conversation: c.conversation, Account: c.account, Data: b,
	}, err
}

// publishEvents publishes the events that follow from a commit. Their ids are derived from the commit, so each is stored once, even if
// several processes publish it.
func (c *carrying) publishEvents(ctx context.Context, k turns.Kept, absent streams.Absence) error {
	turn := k.Commit.Turn
	for i, e := range k.Commit.Entries {
		for _, d := range c.derived(k, i, e) {
			ev, err := c.event(d.kind, fmt.Sprintf("%s.%s.%s", c.account, turn, d.id), turn, k.Commit.At, d.data)
			if err != nil {
				return err
			}
			if err := c.announce(ctx, ev, absent, d.chat); err != nil {
				return err
			}
		}
		if f := c.r.Metrics.Ended; f != nil && e.Kind == schemas.EntryEnd {
			f(e.Status)
		}
	}
	return nil
}

// announce publishes an event, and stores its deliveries to the endpoints and, if chat is not empty, that text's delivery to the chat of
// the turn.
func (c *carrying) announce(ctx context.Context, e schemas.Event, absent streams.Absence, chat string) error {
	at, err := streams.StoreOnce(ctx, c.r.Bus, e, absent)
	if err != nil {
		return fmt.Errorf("publish %s: %w", e.Type, err)
	}
	if c.r.Endpoints != nil {
		endpoints, err := c.r.Endpoints(ctx, c.account)
		if err != nil {
			return err
		}
		if err := lifecycle.Notify(ctx, c.r.Bus, e, at, endpoints); err != nil {
			return err
		}
	}
	if chat == "" {
		return nil
	}
	to, err := c.chat(ctx)
	if err != nil || to == nil {
		return err
	}
	err = lifecycle.Deliver(ctx, c.r.Bus, schemas.ChatDelivery(e, *to, "", schemas.ChatBody{Text: chat, Reply: true}, c.r.Bus.Now()))
	if schemas.CodeOf(err) == schemas.Invalid { // a channel that never can be one: the conversation still has it
		c.log.Warn("answer has no valid channel", "channel", to.Channel, "error", err)
		return nil
	}
	return err
}

// derivedEvent is an event that follows from an entry.
type derivedEvent struct {
	kind schemas.EventType
	id   string // within the turn
	data any
	chat string // the text for the chat; empty: none
}

// derived returns the events of the i-th entry of a commit.
func (c *carrying) derived(k turns.Kept, i int, e schemas.Entry) (list []derivedEvent) {
	turn := k.Commit.Turn
	switch e.Kind {
	case schemas.EntryIn:
		if e.Begins {
			list = append(list, derivedEvent{kind: schemas.AgentStarted, id: "begun",
				data: schemas.AgentStartedData{Turn: turn, Agent: c.hold.Agent, Taken: e.Taken}})
		}
		text := ""
		for _, m := range e.Messages {
			if text != "" {
				text += "\n\n"
			}
			text += textOf(m.Blocks)
		}
		said := schemas.MessageData{Turn: turn, Role: schemas.RoleUser, Taken: e.Taken}
		said.Text, said.TextTruncated = shortened(text)
		list = append(list, derivedEvent{kind: schemas.Message, id: fmt.Sprintf("in.%d.%d", k.Seq, i), data: said})
	case schemas.EntrySpent:
		list = append(list, derivedEvent{kind: schemas.AgentStepRetried, id: fmt.Sprintf("spent.%s.%d.%d", e.Purpose, e.Step, e.Attempt),
			data: schemas.StepRetriedData{Turn: turn, Step: e.Step, Attempt: e.Attempt, Model: e.Model, Reason: e.Reason, Again: e.Again}})
	case schemas.EntryAnswer:
		if text := textOf(e.Blocks); text != "" {
			said := schemas.MessageData{Turn: turn, Role: schemas.RoleAssistant, Step: e.Step}
			said.Text, said.TextTruncated = shortened(text)
			list = append(list, derivedEvent{kind: schemas.Message, id: fmt.Sprintf("said.%d", e.Step), data: said})
		}
		list = append(list, derivedEvent{kind: schemas.AgentStepFinished, id: fmt.Sprintf("step.%d", e.Step),
			data: schemas.StepFinishedData{Turn: turn, Step: e.Step, Attempt: e.Attempt, Model: e.Model, Stop: e.Stop, Usage: e.Usage,
				Calls: e.Calls}})
	case schemas.EntryEnd:
		list = append(list, c.ending(turn, e))
	case schemas.EntryOpen, schemas.EntryResults, schemas.EntrySummary:
	}
	return list
}

// ending returns the event of a turn's end.
func (c *carrying) ending(turn schemas.TurnID, e schemas.Entry) derivedEvent {
	end := schemas.TurnEndData{Turn: turn, Agent: c.hold.Agent, Status: e.Status, Reason: e.Reason, Steps: c.state.Steps, Usage: e.Usage}
	end.Text, end.TextTruncated = shortened(c.lastText)
	d := derivedEvent{kind: schemas.AgentFinished, id: "end", chat: end.Text}
	if e.Status != schemas.TurnCompleted && e.Status != schemas.TurnStopped {
		d.kind, end.Error = schemas.AgentFailed, inWords(e)
		d.chat = "⚠️ " + end.Error
	}
	d.data = end
	return d
}

// inWords returns the text for people that says why a turn has failed.
func inWords(e schemas.Entry) string {
	text := map[schemas.TurnStatus]string{
		schemas.TurnFailed: "The agent could not go on", schemas.TurnRefused: "The model refuses to answer",
		schemas.TurnOverBudget: "The turn has used up what it may", schemas.TurnMaxSteps: "The turn has used up its steps",
		schemas.TurnLooping: "The agent repeats itself",
	}[e.Status]
	if text == "" {
		text = string(e.Status)
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text + "."
}

// refuse publishes that a message is not taken in.
func (c *carrying) refuse(ctx context.Context, w streams.WaitingTurn, why string) error {
	f := w.FollowUp
	e, err := c.event(schemas.AgentFailed, fmt.Sprintf("%s.%s.refused", c.account, f.ID), f.Turn, c.r.Bus.Now(), schemas.TurnEndData{
		Agent: f.Agent, Status: schemas.TurnFailed, Taken: []string{string(f.ID)}, Error: "The message was not taken in: " + why + ".",
	})
	if err != nil {
		return err
	}
	return c.announce(ctx, e, c.r.Bus.AbsentAt(f.Created), "⚠️ The message was not taken in: "+why+".")
}

// shortened returns a text cut to the limit for events, and whether it was cut.
func shortened(text string) (string, bool) {
	if len(text) <= schemas.MaxTurnText {
		return text, false
	}
	return schemas.HeadText(text, schemas.MaxTurnText), true
}
