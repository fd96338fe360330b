// Package isolationtest holds no code but the test that attacks the local provider from inside its
// boxes: as root and as an ordinary user, with namespaces and without. Each attack is a subtest with its
// expectation. The program in probe is what runs in the box where a shell cannot ask.
package isolationtest
