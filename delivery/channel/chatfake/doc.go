// Package chatfake is the common part of the test doubles of chat services: stored messages, rate limits, and the injection of faults.
//
// A double is a separate service: it checks requests as the documentation of the real service says, and stores the messages that it
// accepts. Doubles serve tests, and people who want to try a channel before they have a bot.
package chatfake
