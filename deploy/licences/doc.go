// Package licences finds the licences of everything that is compiled into the bridge, refuses those
// that were not looked at, and writes the notices that they ask for. It reads the module cache, and
// asks no server.
package licences
