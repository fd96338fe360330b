// Package archtest holds the rules of the tree as tests: which package may import which, where a
// third-party module may be used, what a package may do when it is initialised, and that the
// documents say what is so. A rule that nothing needs any more fails as well.
//
// The rules are the tables in rules_test.go.
package archtest
