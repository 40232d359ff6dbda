package disk

import "github.com/cockroachdb/pebble/v2"

// Compactions runs one compaction of a database at a time, as Pebble does where nothing else is
// said. Pebble's own scheduler looks ten times a second whether more are allowed meanwhile, also
// when nothing happens. Here that never changes, so a compaction that waits begins when the one
// before ends. It is for one database.
func Compactions() pebble.CompactionScheduler {
	return pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
}
