//go:build !race

package httpcall

const raceDetector = false
