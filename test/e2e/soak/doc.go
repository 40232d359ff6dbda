// Package soak judges whether a program that runs for long stays as it is: samples of what it uses,
// and a verdict over them.
//
// A Series takes in samples in the order of time. Its windows leave out the warm-up and whatever
// disturbance the test makes; what is flat has about the same median in the last window as in the
// first. The tolerances are part of the report. It knows nothing of package testing.
package soak
