// Package telegram speaks to chats of Telegram by its Bot API.
//
// The API knows no key for a message: if an answer is lost, it is impossible to find out whether the message arrived. Topics of a forum are
// conversations of their own.
package telegram
