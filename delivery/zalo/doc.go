// Package zalo speaks to chats of Zalo by its Bot API: text, and nothing beside it.
//
// The API knows no key for a message, no answers to messages, no files of ours and no edits. Whether a message arrived whose answer was
// lost, nobody can find out.
package zalo
