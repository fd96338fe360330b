// Package telegram speaks to chats of Telegram by its Bot API.
//
// The API knows no key for a message: whether one arrived whose answer was lost, nobody can find out. Topics of a forum are conversations
// of their own.
package telegram
