package web

// Masked replaces a secret in responses.
const Masked = "********"

// Set changes a field that a patch names: it does nothing if from is nil.
func Set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
