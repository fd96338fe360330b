// Package servicetest is what the doubles of vendors' services share: sandboxes that are namespaces of this host (bubblewrap),
// in which commands are real processes, and faults on the way of a request.
package servicetest
