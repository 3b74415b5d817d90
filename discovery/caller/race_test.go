//go:build race

package caller

// raceDetector says that everything costs about ten times as much.
const raceDetector = true
