// Package fair shares bounded resources between accounts, so that one account that has thousands of requests waiting delays those of
// another by what is in progress and one of each other account.
//
// [Queue] hands out queued requests, accounts in turn; [Semaphore] is a semaphore whose waiters are served in turn; [Scheduler] shares the
// slots of a consumer of the log, where messages come in one order and those that have no slot are nak'ed. Nothing here talks to the
// log.
package fair
