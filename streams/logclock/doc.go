// Package logclock gives a process the time of the log's server.
//
// Clocks of hosts may be wrong, may be set, and stop while a host sleeps. So everything that another process judges, and every decision
// that ends, expires or deletes, goes by one clock: the log's. A [Clock] estimates it without a request, from what a server said last and
// from how much time has passed since by a clock that cannot be set. It follows the log's clock with care, as one that jumps ahead would
// make everything overdue at once, and it knows when that clock was set back, after which timestamps do not say what was stored first.
//
// The package decides by numbers: it does not know how a server is asked, nor where the log keeps what processes share.
package logclock
