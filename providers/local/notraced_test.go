//go:build linux && !race

package local_test

const raced = false
