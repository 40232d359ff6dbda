// Package monitoring tests what is in deploy/monitoring with Prometheus' own code: promtool runs
// the unit tests of the alerts, and the tests here see to it that each alert has one, and that
// every expression of the dashboard can be evaluated.
//
// promtool is built without its service discoveries (the tag remove_all_sd): these are most of it.
package monitoring
