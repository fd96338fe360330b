// Package discord implements the adapter of Discord: it sends to channels and threads through the HTTP API, and receives interactions
// (slash commands and button presses).
//
// A message has a nonce; for a few minutes, Discord does not create a second message with the same nonce. A slash command opens a
// placeholder for its answer. The answer replaces the placeholder with the command's token, which is valid for 15 minutes; later messages
// are posted to the channel.
package discord
