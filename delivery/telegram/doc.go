// Package telegram implements the adapter of Telegram, through its Bot API.
//
// The API has no idempotency key: if the response to a send is lost, it is impossible to find out whether the message arrived. Each topic
// of a forum is a conversation of its own.
package telegram
