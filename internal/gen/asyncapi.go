package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// channel is a channel of the AsyncAPI document: a subject with the type of its messages.
type channel struct {
	name     string
	stream   string // name in the topology; empty: its messages are not stored
	address  string // as in the topology, with a name for each wildcard
	message  string
	action   string // of Sandjet: receive or send
	about    string
	headers  object // of its messages, without those of NATS itself
	internal bool   // only roles of Sandjet may use it
}

func channels() []channel {
	return []channel{
		{name: "intake", stream: "INTAKE", address: "sandjet.calls.auto.{account}", message: "request", action: "receive",
			about: "Publish a tool call. With a JetStream PubAck it has exactly one result. Nats-Msg-Id names a publication within its account; " +
				"the other headers of the log are refused. An inbox named in the header Sandjet-Reply gets its outcome.",
			headers: object{
				"Nats-Msg-Id": object{"type": "string",
					"description": "Names the publication within its account: a second one of the same name is the same."},
				"Sandjet-Reply": object{"type": "string", "description": "An inbox of the account, which gets {id, conversation} or {error}."},
			}},
		{name: "rpc", address: subjects.RPCCall + ".{account}", message: "request", action: "receive",
			about: "Request/reply: the answer is {id, conversation} once the call is safe on the log, or {error}."},
		{name: "approvals", address: subjects.RPCApprovals + ".{account}", message: "approval_op", action: "receive",
			about: "Request/reply: the answer is {approvals, more}, {approval} or {error}."},
		{name: "live", address: "sandjet.live.{account}.{conversation}", message: "event", action: "send",
			about: "The events of a conversation as they happen. Nothing is kept here: replay over HTTP or WebSocket."},
		{name: "calls", stream: "CALLS", address: "sandjet.calls.{provider}.{account}.{call}", message: "call", action: "send", internal: true},
		{name: "cancels", stream: "CANCELS", address: "sandjet.cancels.{account}.{call}", message: "cancel", action: "send", internal: true},
		{name: "events", stream: "EVENTS_00", address: "sandjet.events.{shard}.{account}.{conversation}", message: "event",
			action: "send", internal: true},
		{name: "jobs", stream: "JOBS", address: "sandjet.jobs.{account}.{job}", message: "completion", action: "send", internal: true},
		{name: "turns", stream: "TURNS", address: "sandjet.turns.{account}.{conversation}.{followup}", message: "followup_created_data",
			action: "send", internal: true},
		{name: "deliveries", stream: "DELIVERIES", address: "sandjet.deliveries.{channel}.{account}.{delivery}", message: "delivery",
			action: "send", internal: true},
		{name: "jobControl", address: streams.JobControlSubject("{worker}"), message: "job_command", action: "receive", internal: true,
			about: "Request/reply: the worker that manages a job answers with a job_reply, or with an error and the header Sandjet-Failed."},
		{name: "dead", stream: "DEAD", address: "sandjet.dead.{stream}.{account}.{sequence}", message: "dead_letter",
			action: "send", internal: true},
	}
}

func parameter(name string) string {
	return map[string]string{
		"account": "The tenant's id, such as acct_01k…", "provider": "Name of the provider that runs the call.",
		"call": "The call's id in base64url without padding.", "conversation": "The conversation's id in base64url without padding.",
		"shard":    "Two digits: FNV-1a (32 bit) of the conversation's id, modulo the number of shards.",
		"stream":   "The stream where the message was.",
		"sequence": "Its sequence there.", "job": "The job's id.", "followup": "The follow-up's id.", "channel": "webhook, or a chat channel.",
		"delivery": "The delivery's id.", "worker": "The worker's name, as its lease has it.",
	}[name]
}

type object = map[string]any

func ref(path string) object { return object{"$ref": path} }

// asyncAPI returns an AsyncAPI 3.0 document of the topology.
func asyncAPI() ([]byte, error) {
	rows, live := streams.Describe(1)
	byName := map[string]streams.Description{}
	for _, r := range rows {
		byName[r.Name] = r
	}
	all, operations, messages := object{}, object{}, object{}
	for _, c := range channels() {
		subject, kept := live, "Not kept."
		switch {
		case c.stream != "":
			r, ok := byName[c.stream]
			if !ok || len(r.Subjects) == 0 {
				return nil, fmt.Errorf("the topology has no stream %s", c.stream)
			}
			subject, kept = r.Subjects[0], keptText(r)
			if c.about == "" {
				c.about = r.About
			}
			if c.name == "intake" { // published messages arrive here, and are stored on the stream's subject
				subject = subjects.IntakeSubject("*")
			}
		case c.name == "rpc":
			subject = subjects.RPCCall + ".*"
		case c.name == "approvals":
			subject = subjects.RPCApprovals + ".*"
		case c.name == "jobControl":
			subject = streams.JobControlSubject("*")
		}
		names, err := parameters(c.address, subject)
		if err != nil {
			return nil, fmt.Errorf("channel %s: %w", c.name, err)
		}
		params := object{}
		for _, n := range names {
			if params[n] = (object{"description": parameter(n)}); parameter(n) == "" {
				return nil, fmt.Errorf("channel %s: there is no description of %s", c.name, n)
			}
		}
		about := c.about + " " + kept
		if c.internal {
			about += " For roles of Sandjet only."
		}
		message := ref("#/components/messages/" + c.message)
		if c.headers != nil {
			message = describeMessage(c.message)
			message["headers"] = object{"type": "object", "properties": c.headers}
		}
		all[c.name] = object{"address": c.address, "description": about, "parameters": params, "messages": object{c.message: message}}
		operation := object{"action": c.action, "channel": ref("#/channels/" + c.name),
			"messages": []any{ref("#/channels/" + c.name + "/messages/" + c.message)}}
		if c.name == "rpc" || c.name == "approvals" {
			operation["reply"] = object{"address": object{"location": "$message.header#/reply", "description": "The requester's inbox."}}
		}
		operations[c.action+strings.ToUpper(c.name[:1])+c.name[1:]] = operation
		messages[c.message] = describeMessage(c.message)
	}
	return indentPlain(object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Sandjet on NATS", "version": "1.0.0", "license": object{"name": "Apache-2.0"},
			"description": "What travels on the log. Written by internal/gen from the topology and the Go types.",
		},
		"defaultContentType": "application/json",
		"servers": object{"embedded": object{"host": "127.0.0.1:4222", "protocol": "nats",
			"description": "Where `sandjet up` listens unless another address is set.",
			"security":    []any{ref("#/components/securitySchemes/account")}}},
		"channels":   all,
		"operations": operations,
		"components": object{"messages": messages, "securitySchemes": object{"account": object{
			"type": "userPassword",
			"description": "The user is the account's id, the password its key or a credential that ends. Inboxes begin with " +
				"sandjet.reply.<account>, on an embedded server also with _INBOX.",
		}}},
	})
}

func describeMessage(name string) object {
	return object{"name": name, "contentType": "application/json", "payload": object{
		"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": ref("json/" + name + ".schema.json"),
	}}
}

// parameters returns the names that an address has for the wildcards of a subject. It fails if the two do not match.
func parameters(address, subject string) ([]string, error) {
	a, s := strings.Split(address, "."), strings.Split(subject, ".")
	var names []string
	for i := range a {
		name, named := strings.CutPrefix(strings.TrimSuffix(a[i], "}"), "{")
		if len(a) != len(s) || !named && a[i] != s[i] {
			return nil, fmt.Errorf("%s is not %s of the topology", address, subject)
		}
		if named {
			names = append(names, name)
		}
	}
	return names, nil
}

func keptText(r streams.Description) string {
	text := fmt.Sprintf("Stream %s: kept", r.Name)
	if r.Kept > 0 {
		text += " for " + strings.TrimSuffix(strings.TrimSuffix(r.Kept.String(), "0s"), "0m")
	}
	switch {
	case r.WorkQueue && r.Kept > 0:
		text += " or until it is acknowledged"
	case r.WorkQueue:
		text += " until it is acknowledged"
	}
	if r.PerSubject > 0 {
		text += fmt.Sprintf(", at most %d of one subject", r.PerSubject)
	}
	return text + "."
}

// indentPlain is indent without HTML escapes.
func indentPlain(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	return []byte(b.String()), nil
}
