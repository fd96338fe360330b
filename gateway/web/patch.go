package web

// Masked stands in answers in place of a secret.
const Masked = "********"

// Set changes a field that a patch names: it does nothing if from is nil.
func Set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
