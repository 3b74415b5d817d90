//go:build race

package directory

// slowdown is what long tests are shortened by: the detector makes everything about
// ten times slower.
const slowdown = 10
