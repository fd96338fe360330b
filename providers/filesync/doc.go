// Package filesync lets providers whose sandboxes have their files on the worker's host work with workspaces on S3: before a use what has
// changed in the bucket is brought into a copy on the host, after it what the use has changed is written to the bucket.
//
// Three things are compared for each file: what is in the copy, what is in the bucket, and what both were when they were last equal (the
// base). The function decide says what follows. Every write to the bucket is conditional, so that a worker that was suspended overwrites
// nothing; a write is known again by the hash of its content, so that any step may be done twice. When a file was changed on both sides,
// the bucket's version keeps the name, and the other stays beside it, in the copy and in the bucket, as name.conflict-<hash>.
//
// A use has a mark on the disk, locked by the process that has it. A mark without a lock is that of a use whose process died: the next use
// of the workspace on the host, or [Copies.Run], writes out what it has left.
package filesync
