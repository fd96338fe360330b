// Package skills reads and writes bundles of skills: a folder with a file SKILL.md, in the format of https://agentskills.io/specification.
//
// A bundle comes as a tar, compressed by gzip or not, or as files. Whatever its order, times, owners and folders are, the same files make
// the same [Bundle.Tar], byte for byte, and so the same digest. The package touches no file system and no log. What it is given may be
// anything: it holds no more than the limits allow, and refuses what could be written outside of a folder.
//
// # Bundles
//
// The files become one tar in one form: files alone, by path, modes 0644 or 0755, no times and no owners. Its SHA-256 is the bundle's name,
// so the same folder has the same digest on every host, and sending it again changes nothing. The tar lies in chunks on a stream of its
// own, SKILLS, in which nothing ages out; a chunk's subject has account, digest, number and size. What lies under a subject never changes,
// so any number of uploads may write it at once, and a reader of a record finds the bundle that it names whole, or certainly not at all.
//
// The bundle is written before the record that names it. The record's id follows from account and name, so of several who add a name at
// once all write the same record, on the condition of its revision. A bundle that no record names is removed when it was found so for an
// hour, and none of it was written for as long. An upload writes all chunks again, also when they are there, which makes them young; the
// cleaner removes up to the sequence that it has read, so what is written meanwhile stays. Who still reads a bundle that is gone after all
// (a worker that was suspended for an hour) reads the record again.
//
// The limit is of bytes that are really kept, replaced bundles included, so that uploading the same skill ten thousand times ends at the
// limit and not at the disk's.
package skills
