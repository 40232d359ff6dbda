package history

// Questions are all that can be asked of a history. Several goroutines may ask at a time.
type Questions struct {
	Resources Resources
	Objects   Objects
	Timeline  Timeline
	Coverage  Coverage
}

// Resources are what a history has objects of.
type Resources struct{ db *database }

// Objects are what objects were.
type Objects struct{ db *database }

// Timeline is what happened, and when.
type Timeline struct{ db *database }

// Coverage says from when on a history is complete, up to when, and what may be missing between.
type Coverage struct{ db *database }

func newQuestions(db *database) *Questions {
	return &Questions{Resources{db}, Objects{db}, Timeline{db}, Coverage{db}}
}
