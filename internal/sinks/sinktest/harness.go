package sinktest

import (
	"maps"
	"slices"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks"
)

// Cluster is the cluster of every event that the suite sends.
const Cluster = "test"

// Harness is what the suite needs to know of a sink.
type Harness struct {
	// Start makes a broker with an empty destination, for one case. Its clean-up belongs to t.
	Start func(t *testing.T) *Broker
	// TooLarge is a payload size in bytes that the broker of Start refuses while it takes one of
	// half that size.
	TooLarge int
	// Exempt names the cases (the names that `go test -v` shows) that do not hold for this sink,
	// each with its reason.
	Exempt map[string]string
}

// Broker is one destination and the way to look into it.
type Broker struct {
	// NewSink makes a sink over this broker. The suite opens and closes it; a case may make
	// several, one after the other or at once, as a restarted bridge does.
	NewSink func(t *testing.T) sinks.Sink
	// Read returns everything that is stored, dead letters included, as soon as there are at least
	// n messages. Within one Destination and Partition, and within one object, it is in the
	// broker's order. It fails t when less than n come, after the few seconds at most that the
	// broker needs to show what it has acknowledged.
	Read func(t *testing.T, n int) []Received
	// Break makes the broker unreachable for its sinks, those open and those to come, and ends
	// their connections.
	Break func()
	// Restore ends what Break began. What was stored is still there.
	Restore func()
	// Limit sets the largest message that the broker takes, as an administrator does while sinks
	// are open; 0 sets it to what it was. nil: the sink's destination has no such limit.
	Limit func(t *testing.T, bytes int)
}

// Run runs the suite, one subtest for each promise.
func Run(t *testing.T, h Harness) {
	t.Helper()
	checkExemptions(t, h)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if reason, ok := h.Exempt[c.name]; ok {
				t.Skipf("exempt: %s", reason)
			}
			c.run(t, h)
		})
	}
}

// checkExemptions fails on an exemption without a case: a renamed case would silently stay exempt.
func checkExemptions(t *testing.T, h Harness) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(h.Exempt)) {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.name == name }) {
			t.Errorf("Exempt names no case of the suite: %q", name)
		}
		if h.Exempt[name] == "" {
			t.Errorf("Exempt[%q] gives no reason", name)
		}
	}
}

type testCase struct {
	name string
	run  func(t *testing.T, h Harness)
}

var cases = []testCase{
	{"stores what it is given", storesWhatItIsGiven},
	{"keeps values that need escaping", keepsValuesThatNeedEscaping},
	{"stores an event without data", storesAnEventWithoutData},
	{"refuses an event at which it panics, and no other one", refusesAnEventAtWhichItPanics},
	{"gives a lane from memory to who does not wait", givesALaneFromMemory},
	{"stores events about an informer", storesInformerEvents},
	{"brings events about an informer to each part", broadcasts},
	{"keeps the order of each object", keepsOrder},
	{"keeps the order of concurrent callers", keepsOrderOfConcurrentCallers},
	{"stores a resent message once", storesAResentMessageOnce},
	{"stores a message resent after a restart once", storesOnceAcrossRestart},
	{"recalls what was stored behind a position", recalls},
	{"refuses what is too large and stores the rest of the call", refusesTooLarge},
	{"reports before it sends what is too large", reportsWhatIsTooLarge},
	{"stores the smaller form of what is too large", storesTheSmallerForm},
	{"sends a smaller form while the limit is lowered", followsTheLimit},
	{"stores what comes behind a dead letter", goesOnBehindADeadLetter},
	{"keeps an object that is created again behind its end", keepsAnObjectThatReturns},
	{"answers while the broker is unavailable and stores in order once it is back", survivesAnOutage},
	{"opens once the broker is back", opensOnceTheBrokerIsBack},
	{"a cancelled context ends Publish with an answer for each message", cancelEndsPublish},
	{"what a cancelled call has left open is stored " +
		"once in other calls", storesOnceAfterACancelledCall},
	{"a dead letter arrives with its reason", deadLetterArrives},
	{"a dead letter that is too large arrives without its data", largeDeadLetterArrives},
	{
		"a dead letter whose attributes are too large arrives with its reason",
		swollenDeadLetterArrives,
	},
	{"the lane of an object does not change", laneIsConstant},
	{"names never meet", namesNeverMeet},
	{"an empty batch returns at once", emptyBatch},
	{"close ends every goroutine", closeEndsGoroutines},
}
