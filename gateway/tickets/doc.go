// Package tickets makes and checks attach tokens: what a browser holds in the place of an account's key.
//
// A [Ticket] names the account, the conversations, what may be done there, and when it ends. Sealed by a
// [Signer] it is a token, "sjat_…", that any gateway with the same keys verifies without asking anybody. It
// also names the account's key it was made with, by a fingerprint: who keeps the keys can tell at any time
// whether that one is still good.
package tickets
