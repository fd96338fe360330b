// Package channeltest is the suite that every adapter of a chat service passes, against a double of its service.
package channeltest
