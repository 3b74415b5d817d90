//go:build !race

package pages

const slowdown = 1
