// Package github implements the adapter of GitHub: it comments on issues and pull requests through the REST API, as a GitHub App or with
// an access token.
//
// The API has no idempotency key. Each comment ends with an HTML comment, which pages do not show, that contains the delivery's key; when
// the response to a send was lost, [Adapter.Find] searches for it. Each issue and each pull request is a conversation. A comment on lines
// of code is answered in its own thread.
package github
