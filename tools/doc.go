// Package tools pins the programs that check this project, outside the product's dependency graph.
// Programs that want other dependencies are in the Makefile, each with its version. charts and lock
// have the packages of Python that check the chart, and that lock such packages.
package tools
