// Package inbox fetches the files that people send to chats, stores them in workspaces, and then hands the messages on.
//
// A message with files is a delivery of [schemas.InboxChannel] from the moment when its service was answered: it waits on the log, and
// any deliverer may take it, again after another one has died. What is stored already is not fetched again, and a file is there once
// all of it is. A file that cannot be had delays its message by some minutes at most: the message then says why.
package inbox
