//go:build race

package e2e_test

// raceEnabled: the bridge is built with the race detector when the tests are.
const raceEnabled = true
