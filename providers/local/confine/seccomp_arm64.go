//go:build linux

package confine

const nativeArch = archARM64
