// Package slack implements the adapter of Slack: it sends through the Web API, and receives events of the Events API, button presses and
// slash commands.
//
// The Web API has no idempotency key. Each message carries the delivery's key in its metadata; when the response to a send was lost,
// [Adapter.Find] searches for a message with that key. Files cannot carry metadata, so files are not sent. In a channel, an answer is
// posted to the thread of the message that it answers, and each thread is a conversation of its own; a direct message chat is one
// conversation.
package slack
