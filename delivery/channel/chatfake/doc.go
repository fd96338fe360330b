// Package chatfake is what doubles of chat services have in common: the messages that they keep, the rates that they hold, and a switch
// for faults.
//
// A double is a service of its own: it holds requests to what the real one documents, and keeps what it accepts. It serves tests, and
// people who want to see a channel work before they have a bot.
package chatfake
