// Package delivery brings events to receivers outside: at least once, until they have them or their
// tries are used up.
//
// A [Deliverer] serves one channel. It knows when a delivery is tried again and where it stands, and
// nothing about the channel: a [Sender] makes the tries. All state is on the log, so any number of
// deliverers may serve a channel, and each may die at any moment: a delivery whose try was not written
// down is tried again under the same id.
package delivery
