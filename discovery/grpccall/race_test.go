//go:build race

package grpccall

const raceDetector = true
