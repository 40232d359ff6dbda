// Package deadletters has the commands for refused events: those in the dead letters of a broker
// (bridge deadletters), and those that the dead letters did not take either, which are files in the
// state directory (bridge undelivered). Both list, print and remove; a running bridge sends again.
package deadletters
