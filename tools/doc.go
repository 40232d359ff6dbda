// Package tools pins the programs that check this project, outside the product's dependency graph.
// Programs whose dependencies do not fit together have modules of their own: workflows, charts,
// release.
// lock has the program that locks the packages of Python.
package tools
