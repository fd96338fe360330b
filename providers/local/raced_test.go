//go:build linux && race

package local_test

// raced says that this program, and so a box's init when it is the same program, carries the race
// detector.
const raced = true
