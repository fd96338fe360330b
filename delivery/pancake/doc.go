// Package pancake speaks to customers of pages in Pancake (pages.fm) by its public API: in chats of two, and below posts.
//
// The API knows no key for a message and keeps nothing with one by which it could be found again. It answers many errors with the status
// 200. Requests to us carry no signature, so the secret is a part of the webhook's address: ?secret=….
package pancake
