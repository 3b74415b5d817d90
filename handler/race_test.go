//go:build race

package handler

// raceDetector says that every request costs about ten times as much.
const raceDetector = true
