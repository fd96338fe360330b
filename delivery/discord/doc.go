// Package discord speaks to channels and threads of Discord by its HTTP API, and takes in interactions: commands and buttons.
//
// A message has a nonce, by which Discord keeps it from being there twice for a few minutes. The answer to a command goes first into the
// place that the command has opened, with the command's token, which is good for a quarter of an hour; later it goes into the channel.
package discord
