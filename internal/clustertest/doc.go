// Package clustertest tests the log on three servers: with readers at a server whose replicas lag, and with servers that are killed,
// partitioned and suspended.
package clustertest
