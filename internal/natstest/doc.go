// Package natstest gives tests the real log: an embedded NATS server with JetStream.
//
// [Run] puts it into a testing/synctest bubble, where time is virtual: redelivery, ages and leases
// of hours pass in milliseconds. [Start] is the one for the wall clock, with files, that can be
// restarted; tests that have sockets or processes need it.
package natstest
