// Package slack speaks to channels of Slack by its Web API, its Events API, interactions and commands.
//
// The API knows no key for a message. Each one carries the delivery's key as metadata, by which a message is found whose answer was lost.
// Files cannot carry metadata, so none are sent. In channels an answer stands in the thread of what it answers, and each thread is a
// conversation of its own; a chat of two is one conversation.
package slack
