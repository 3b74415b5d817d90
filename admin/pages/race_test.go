//go:build race

package pages

// slowdown is how much more time a figure has: the detector makes everything about
// ten times slower.
const slowdown = 10
