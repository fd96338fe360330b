//go:build linux && !amd64 && !arm64

package confine

const nativeArch uint32 = 0 // no table: Seccomp refuses
