// Package maintenance holds what keeps the log in order beside the calls themselves. The [Settler] draws the consequences of ended jobs,
// the [JobRescuer] ends jobs without a manager, the [CallExpirer] gives calls their end that no worker will give one to, and the
// [ApprovalExpirer] ends approvals that were not answered. The [Supervisor] runs all that a process has.
//
// Each may run in any number of processes, and be killed or stopped at any line. The Settler and the CallExpirer share their
// work. The JobRescuer and the ApprovalExpirer go through everything, so one process does it, under a lease. Whatever one does
// is decided by the log, which takes the first and recognises the repeat, so that two at once do no harm.
package maintenance

import "time"

const (
	// again is how soon a message is handed out again whose handling failed.
	again = time.Second
	// maxAttempts is out of reach on purpose: what is handed out again waits for something that comes.
	maxAttempts = 1_000_000
)
