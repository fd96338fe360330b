// Package usage bounds what is kept on the log: the log by its room, an account by its quotas and by the number of its open jobs.
//
// [Room] admits writes while the log has room for their kind of work; [Meter] counts what accounts write and admits what their quotas allow;
// [Jobs] admits background jobs. Nothing here talks to the log: the caller hands in the functions that do, and finds out whose a message is
// and which class it belongs to.
package usage
