// Package apiserver is an API server for benchmarks: it speaks the real wire protocol (discovery,
// list, pages, WatchList, watch with bookmarks) over any number of pods that exist only as a
// formula, and costs so little that what reads from it is what is measured.
//
// All pods come from one template, in which the fields that differ have a fixed width and are
// written in place. The server's state is one number: its version. Pod i is created at version i+1;
// every version after that updates the next pod in turn. So any version's event can be made again
// at any time, for any number of watchers, from nothing.
package apiserver
