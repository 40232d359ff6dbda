// Package harness starts the programs of an end-to-end test, talks to them, and ends them: a
// control plane (test/kubernetes) and bridges, each a process of its own, as a user runs them.
// Nothing of the product is imported.
//
// It takes in the paths of binaries and directories to work in, and hands out running processes
// with what they wrote. Every process ends when it is asked to, and with the process that started
// it, even if that is killed. It knows nothing of package testing, so that the demo can use it too.
package harness
