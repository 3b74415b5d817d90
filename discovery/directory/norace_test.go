//go:build !race

package directory

const slowdown = 1
