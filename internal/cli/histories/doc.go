// Package histories has the commands that make a history (bridge archive), ask one (bridge history,
// show, diff, timeline, state), and serve one to kubectl (bridge serve). They read its directory,
// also while a bridge writes to it.
package histories
