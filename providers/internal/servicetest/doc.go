// Package servicetest is the common part of the test doubles of vendors' services: sandboxes made of this host's namespaces (bubblewrap),
// in which commands are real processes, and faults injected into requests.
package servicetest
