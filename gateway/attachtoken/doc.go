// Package attachtoken makes and checks attach tokens: what a browser holds in the place of an account's key.
//
// [Claims] name the account, the conversations, what may be done there, and when they end. Sealed by a [Signer] they are a token, "sjat_…",
// that any gateway with the same keys verifies by itself. They also name the account's key they were made with, by a fingerprint, so a
// holder of the keys can check at any time whether that key is still valid.
package attachtoken
