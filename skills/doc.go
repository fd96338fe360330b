// Package skills reads and writes bundles of skills: a folder with a file SKILL.md, in the format of https://agentskills.io/specification.
//
// A bundle comes as a tar, compressed by gzip or not, or as files. Whatever its order, times, owners and folders are, the same files make
// the same [Bundle.Tar], byte for byte, and so the same digest. The package touches no file system and no log. What it is given may be
// anything: it holds no more than the limits allow, and refuses what could be written outside of a folder.
package skills
