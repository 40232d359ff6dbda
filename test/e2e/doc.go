// Package e2e holds the end-to-end tests: the built bridge beside a real control plane and real
// sinks, seen from outside only. See README.md for how to run them, and how they judge.
package e2e
