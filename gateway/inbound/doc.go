// Package inbound takes what chat services post: messages, presses of buttons and the services' own tries of the address.
//
// A request is verified by the channel's own secret over the bytes as they came; what it means is decided by a pure function, see
// [Decide]; and it is answered once all that follows from it is on the log. So a process may die at any moment: the service posts
// again what was not answered, and everything that is put on the log is there once. What can wait (the mark that a message was seen)
// is done beside the answer, and nothing is lost where it is not.
package inbound
