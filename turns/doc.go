// Package turns decides what happens next in the turn of an agent: what is written to the conversation's transcript, what a model is asked,
// which calls are made, how long is waited. It has no effects: [Next] is a function of the [State] that follows from the transcript, and of
// the [View] that its caller has of everything else. So each step survives a crash: every process that reads the same transcript makes
// the same decision.
//
// A caller settles what a [Decision] says is settled. If it has entries, the caller stores them as one commit, applies that to its state
// and asks again; only if it has none does the caller act on the other fields.
//
// # Turns that wait
//
// Package turns/runner carries out what turns decides.
//
//   - A wake is a message that says "look at this conversation", on a stream of its own with one subject for each conversation, of which
//     the last message alone is kept. Everything that can move a turn leaves one: what comes in, the end of a call (lifecycle.Finish does
//     so for calls with the mark wake), a time that was set, as a scheduled message. So any number of ends causes one check, and a check
//     that finds nothing new costs little.
//   - The process that receives a wake takes the conversation's record in the bucket turns, reads the transcript, and does what turns.Next
//     says until there is nothing to do for some seconds. Then it writes the record, releases it and acknowledges the wake. A turn that
//     waits costs only what is stored. In case a wake is lost, a turn that waits for calls is looked at after a minute, and later every
//     quarter of an hour.
//   - The record names its owner and counts owners. A process has one lease for all of its conversations. A process that finds a living
//     owner tries again a second later, and the owner learns of the wake by its header, which the server publishes to all. The record
//     decides nothing: of two that carry on the same turn, the transcript lets one write, and the other stands down.
//   - What came in stays in the stream of turns; the record says up to which it is dealt with. A message for an agent without a model
//     is a harness's, as ever.
//   - Calls are ordinary ones, admitted under ids that are the same in any process, so approvals, limits, jobs and cancellation hold for
//     them, and a call that is made again is found. Ids are known for a day: a call that is unknown 20 hours after its answer is not made,
//     and its result says that it may have taken effect.
//   - Events follow from commits and have ids made of what they are about. Those of a commit are published before the next is written,
//     so the process that takes over publishes those of the last one again, and each is there once. Pieces of an answer (message.delta) are
//     published as they come, every 100 ms or 2 KiB, and may be lost or void; the whole comes as message.
package turns
