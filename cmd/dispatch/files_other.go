//go:build !unix

package main

import "math"

// maxOpenFiles is no limit where the system has none.
func maxOpenFiles() int { return math.MaxInt32 }
