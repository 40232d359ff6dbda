// Package adminclient gives commands to a running bridge. It finds the address of the bridge's
// admin server and its token by the flags of a command, or by the configuration of the bridge.
package adminclient
