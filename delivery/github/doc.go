// Package github speaks in issues and pull requests of GitHub by its REST API, as an app or with a token.
//
// The API knows no key for a comment. Each one ends with a mark that pages do not show, by which one is found whose answer was lost. Each
// issue and each pull request is a conversation; comments on lines of code are answered in their own thread.
package github
