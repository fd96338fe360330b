// Package delivery delivers events to external receivers, at least once, until a receiver has accepted an event or its tries are used up.
//
// A [Deliverer] serves one channel. It schedules the tries and records their state; it knows nothing about the channel, whose tries are
// made by a [Sender]. All state is in the stream. Therefore any number of deliverers may serve a channel, and each may crash at any time:
// a delivery whose try was not recorded is tried again under the same id.
package delivery
