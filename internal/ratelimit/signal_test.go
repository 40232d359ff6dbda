package ratelimit

import "testing"

func TestSignal(t *testing.T) {
	s, woken := &Signal{}, 0
	s.Set()
	end := s.Watch(func() { woken++ })
	if !s.IsSet() || woken != 0 {
		t.Errorf("set %t, woken %d times: who begins to watch looks itself", s.IsSet(), woken)
	}
	if !s.Reset() || s.IsSet() || s.Reset() {
		t.Error("Take resets the signal")
	}
	s.Set()
	s.Set()
	if woken != 2 || !s.Reset() {
		t.Errorf("woken %d times of 2", woken)
	}
	end()
	s.Set()
	if woken != 2 || !s.IsSet() {
		t.Errorf("woken %d times; it is not watched", woken)
	}

	var none *Signal
	none.Set()
	none.Watch(func() { t.Error("woken by no signal") })()
	if none.IsSet() || none.Reset() {
		t.Error("a nil Signal is set")
	}
}
