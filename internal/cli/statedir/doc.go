// Package statedir is bridge statedir: it lists, prints, checks and resets what a bridge remembers
// over a restart. The bridge has to be stopped, since its state directory belongs to one process.
package statedir
