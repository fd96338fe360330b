//go:build linux

package confine

const nativeArch = archAMD64
