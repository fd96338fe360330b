// Package channeltest is the test suite that the adapter of every chat service must pass, against a test double of its service.
package channeltest
