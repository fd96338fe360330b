// Package bench measures Sandjet and the bare engine below it in the same run, so that published figures are ratios rather than properties
// of a host.
//
// Each benchmark runs in interleaved rounds (bare, ours, bare, ours, …), each on a new embedded server with an empty directory, and
// reports medians with their spread. `sandjet bench` prints the tables of docs/BENCHMARKS.md. Nothing here asserts a time: the figures are
// for people.
package bench
