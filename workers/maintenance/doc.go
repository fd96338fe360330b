// Package maintenance contains the housekeepers, which finish what workers leave undone. The [Settler] processes the completions of jobs,
// the [JobRescuer] ends jobs without a job manager, the [CallExpirer] stores results for calls that no worker will finish, and the
// [ApprovalExpirer] expires approvals that were not answered. The [Supervisor] runs the housekeepers of a process.
//
// Each may run in any number of processes, and may be killed at any point. Settlers and CallExpirers share their work. A JobRescuer or
// ApprovalExpirer goes through all records, so only the process with a lease does it. The effects of two at once are those of one: every
// write is conditional, or is recognized as a duplicate by the stream.
package maintenance

import "time"

const (
	// again is the delay before a message whose handling failed is redelivered.
	again = time.Second
	// maxAttempts is practically unlimited, because a redelivered message waits for a condition that will be met.
	maxAttempts = 1_000_000
)
