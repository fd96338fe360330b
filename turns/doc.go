// Package turns decides what happens next in the turn of an agent: what is written to the conversation's transcript, what a model is
// asked, which calls are made, how long is waited. It has no effects: [Next] is a function of the [State] that follows from the
// transcript, and of the [View] that its caller has of everything else. So each step survives a crash: whoever reads the same
// transcript decides the same.
//
// A caller stores the commit of a [Decision] first, at its condition, applies it, and asks again. It does what else the decision says
// only where there is no commit.
package turns
