// Package attachtoken makes and checks attach tokens: what a browser holds in the place of an account's key.
//
// [Claims] name the account, the conversations, what may be done there, and when they end. Sealed by a
// [Signer] they are a token, "sjat_…", that any gateway with the same keys verifies without asking anybody. They
// also name the account's key they were made with, by a fingerprint: who keeps the keys can tell at any time
// whether that one is still good.
package attachtoken
