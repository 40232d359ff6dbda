// Package container runs a program as a container runtime would: its own root file system, which
// may be read-only, with mounts in it, as another user and without privileges. It is for tests of
// what a pod says on machines without a container engine; it needs Linux and root.
//
// The program that uses it calls Init first of all: it is started a second time, inside, to make
// the mounts.
package container
