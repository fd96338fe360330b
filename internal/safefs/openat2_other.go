//go:build !linux

package safefs

func openBackend(dir string) (backend, error) { return openFallback(dir) }
