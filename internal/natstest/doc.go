// Package natstest provides the real log to tests: an embedded NATS server with JetStream.
//
// [Run] runs it in a testing/synctest bubble, where time is virtual: redelivery, ages and leases of hours pass in milliseconds. [Start]
// runs it on the wall clock; with files it can be restarted. Tests that have sockets or processes need that one.
package natstest
