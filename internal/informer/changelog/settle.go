package changelog

// settleLocked settles an entry, and has its state committed.
func (l *Log) settleLocked(e *Entry) {
	if key := e.stateKey(); key != "" {
		l.states.Settle(key, e.place, e.State())
	}
	l.marks.Settle(e.place)
}

// enough is how many states to be committed have a commit come early.
const enough = 1000

// unlockAndWake ends what may have settled entries. before is how many states were ready before it.
func (l *Log) unlockAndWake(before int) {
	after := l.states.Ready()
	l.mu.Unlock()
	if before < enough && after >= enough {
		l.cfg.Committer.Wake()
	}
}

// release releases holds, after what they are about is settled or is pending no more: a position of
// a sink that is saved behind them must not come with a cursor that has it pending.
func release(holds []Hold) {
	for _, h := range holds {
		if h != nil {
			h.Release()
		}
	}
}
