// Package archtest checks the rules of the tree as tests: which package may import which, where a third-party module may be used, what a
// package may do when it is initialized, and that the documents match the code. A rule that is no longer needed fails as well.
//
// The rules are the tables in rules_test.go.
package archtest
