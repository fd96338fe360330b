// Package zalo implements the adapter of Zalo, through its Bot API. It sends only text.
//
// The API has no idempotency key, no replies to messages, no files and no edits. If the response to a send is lost, it is impossible to
// find out whether the message arrived.
package zalo
