// Package pancake implements the adapter of Pancake (pages.fm): through its public API it writes to a page's customers, in direct
// conversations and in comments on posts.
//
// The API has no idempotency key, and stores nothing with a message by which the message could be found again. It responds to many errors
// with status 200. Pancake does not sign its requests to us, so the webhook's address contains a secret: ?secret=….
package pancake
