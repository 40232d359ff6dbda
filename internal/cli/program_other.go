//go:build !linux

package cli

// freeProgram does nothing: how to give pages of the program back is known for Linux only.
func freeProgram() {}
