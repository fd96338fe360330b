// Package artifacts finds what one call has changed in the places of its workspace that are for people, and puts it into chunks.
//
// It looks before the call and after it: a file is changed when its size, its times, its inode or its type are others, and, where the
// content was known before, when the content is another too. It reads regular files alone, each by one open file whose identity it
// compares, so that no link is followed and no version is mixed with another. Deciding is pure ([Plan]); reading is [Collector.Read].
package artifacts
