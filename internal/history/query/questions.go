package query

import (
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/record"
)

// Source is the database that is asked.
type Source interface {
	NewIter(*pebble.IterOptions) (*pebble.Iterator, error)
	// Units are all that are known, in the order in which they came.
	Units() []*record.Unit
	// Unit is the one of a number, nil for none.
	Unit(number uint32) *record.Unit
	// Horizon is the time before which only the last versions are kept, zero for none.
	Horizon() (time.Time, error)
	// ReadError adds to damage what can be done about it.
	ReadError(error) error
}

// Questions are all that can be asked of a history. Several goroutines may ask at a time.
type Questions struct {
	Resources Resources
	Objects   Objects
	Timeline  Timeline
	Coverage  Coverage
}

// Resources are what a history has objects of.
type Resources struct{ db Source }

// Objects are what objects were.
type Objects struct{ db Source }

// Timeline is what happened, and when.
type Timeline struct{ db Source }

// Coverage says from when on a history is complete, up to when, and what may be missing between.
type Coverage struct{ db Source }

// New are the questions to a database.
func New(db Source) *Questions {
	return &Questions{Resources{db}, Objects{db}, Timeline{db}, Coverage{db}}
}
