//go:build !amd64

package whitelist

func prefetch(*byte) {}
