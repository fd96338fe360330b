// Package clustertest holds the log on three servers, with readers that are attached to a server whose
// copies are behind, servers that are killed, cut off and put to sleep.
package clustertest
