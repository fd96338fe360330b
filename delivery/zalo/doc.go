// Package zalo speaks to chats of Zalo by its Bot API: text, and nothing beside it.
//
// The API knows no key for a message, no answers to messages, no files of ours and no edits. If an answer is lost, it is impossible to find
// out whether the message arrived.
package zalo
