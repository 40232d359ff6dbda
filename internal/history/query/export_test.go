package query

// Candidates counts the names that a state looks at.
func (h Objects) Candidates(q StateQuery) (n int, err error) {
	r, err := newReader(h.db)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for _, u := range q.Units {
		w, err := newLiveWalk(r, u, &q)
		if err != nil {
			return 0, err
		}
		for ; w.names != nil && err == nil; err = w.next() {
			n++
		}
		w.Close()
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}
