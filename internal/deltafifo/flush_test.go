package deltafifo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// steps is a Processor that notes what it got, and by which of its methods.
type steps struct {
	lines  []string
	tried  int // by TryProcess
	takes  int // of the next TryProcess; -1 for all
	fails  error
	inside bool
}

func (s *steps) note(d deltafifo.Deltas) {
	if s.inside {
		panic("two turns at once")
	}
	s.inside = true
	for i := range d {
		s.lines = append(s.lines, line(&d[i]))
	}
	s.inside = false
}

func (s *steps) Process(_ context.Context, d deltafifo.Deltas) error {
	s.note(d)
	return nil
}

func (s *steps) TryProcess(d deltafifo.Deltas) (int, error) {
	n := len(d)
	if s.takes >= 0 {
		n = min(n, s.takes)
	}
	s.note(d[:n])
	s.tried += n
	return n, s.fails
}

// popping starts a FIFO that continues from a known state, and pops until it ends.
func popping(t *testing.T, s *steps) (f *deltafifo.FIFO, ended chan error) {
	f = newFIFO(t, deltafifo.Config{Resumed: true})
	ended = make(chan error, 1)
	go func() {
		for {
			if err := f.Pop(t.Context(), s); err != nil {
				ended <- err
				return
			}
		}
	}()
	synctest.Wait()
	return f, ended
}

func TestFlush(t *testing.T) {
	run := func(name string, s steps, test func(t *testing.T, f *deltafifo.FIFO, s *steps, ended chan error)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, ended := popping(t, &s)
				test(t, f, &s, ended)
				f.Close()
				synctest.Wait()
			})
		})
	}
	update := func(t *testing.T, f *deltafifo.FIFO, name string, versions ...int) {
		for _, v := range versions {
			testkit.OK(t, f.Update(t.Context(), object(name, fmt.Sprint(v))))
		}
	}
	run("processes on its goroutine", steps{takes: -1}, func(t *testing.T, f *deltafifo.FIFO, s *steps, _ chan error) {
		update(t, f, "a", 1, 2)
		f.Flush()
		testkit.Want(t, s.lines, "Updated a 1", "Updated a 2")
		if s.tried != 2 || f.Stats().Deltas != 0 || f.Stats().Bytes != 0 {
			t.Errorf("%d of 2 were tried, %+v", s.tried, f.Stats())
		}
	})
	run("leaves to Pop what TryProcess does not take", steps{takes: 1}, func(t *testing.T, f *deltafifo.FIFO, s *steps, _ chan error) {
		update(t, f, "a", 1, 2, 3)
		f.Flush()
		synctest.Wait()
		testkit.Want(t, s.lines, "Updated a 1", "Updated a 2", "Updated a 3")
		if s.tried != 1 {
			t.Errorf("%d were tried, want 1", s.tried)
		}
	})
	run("leaves lists to Pop, and what comes in them", steps{takes: -1}, func(t *testing.T, f *deltafifo.FIFO, s *steps, _ chan error) {
		testkit.OK(t, f.BeginReplace(t.Context(), resource.Relist{}))
		synctest.Wait()
		testkit.OK(t, f.Delete(t.Context(), object("a", "1")))
		f.Flush()
		synctest.Wait()
		testkit.OK(t, f.EndReplace(t.Context(), "2"))
		f.Flush()
		synctest.Wait()
		testkit.Want(t, s.lines, "ReplaceBegin", "Deleted a 1", "ReplaceEnd 2")
		if s.tried != 0 {
			t.Errorf("%d were tried, want none", s.tried)
		}
	})
	run("leaves to Pop what comes in a flood", steps{takes: -1}, func(t *testing.T, f *deltafifo.FIFO, s *steps, _ chan error) {
		for v := range 3 {
			update(t, f, "a", v)
			f.Flush()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		update(t, f, "a", 3)
		f.Flush()
		testkit.Want(t, s.lines, "Updated a 0", "Updated a 1", "Updated a 2", "Updated a 3")
		if s.tried != 2 {
			t.Errorf("%d were tried, want the first and the last", s.tried)
		}
	})
	run("is not needed when much waits", steps{takes: -1}, func(t *testing.T, f *deltafifo.FIFO, s *steps, _ chan error) {
		for v := range 32 {
			update(t, f, "a", v)
		}
		synctest.Wait()
		if len(s.lines) != 32 || s.tried != 0 {
			t.Errorf("%d of 32 were processed, %d of them tried", len(s.lines), s.tried)
		}
	})
	run("is not needed when there is no room", steps{takes: -1}, func(t *testing.T, f *deltafifo.FIFO, s *steps, _ chan error) {
		big := object("a", "1")
		big.Raw = make([]byte, 63<<10)
		testkit.OK(t, f.Update(t.Context(), big))
		large := object("a", "2")
		large.Raw = make([]byte, 17<<20)
		testkit.OK(t, f.Update(t.Context(), large))
		synctest.Wait()
		testkit.Want(t, s.lines, "Updated a 1", "Updated a 2")
	})
	errFailed := errors.New("failed")
	run("ends the FIFO with an error of TryProcess", steps{takes: -1, fails: errFailed}, func(t *testing.T, f *deltafifo.FIFO, _ *steps, ended chan error) {
		update(t, f, "a", 1)
		f.Flush()
		if err := <-ended; !errors.Is(err, errFailed) {
			t.Errorf("Pop: %v, want the error", err)
		}
		if err := f.Update(t.Context(), object("a", "2")); !errors.Is(err, deltafifo.ErrClosed) {
			t.Errorf("Update: %v, want ErrClosed", err)
		}
	})
}

// TestStepsKeepOrder has everything processed once and in order, whoever does it.
func TestStepsKeepOrder(t *testing.T) {
	dice := rand.New(rand.NewPCG(uint64(*modelSeed), 1))
	s := &steps{}
	var added []string
	synctest.Test(t, func(t *testing.T) {
		f, _ := popping(t, s)
		for n := range 2000 {
			s.takes = dice.IntN(4) - 1
			obj := object("a", fmt.Sprint(n))
			switch dice.IntN(20) {
			case 0:
				added = append(added, "Sync a")
				testkit.OK(t, f.Resync(t.Context(), obj.Key(), 1, 1, 1))
			case 1:
				added = append(added, "ReplaceBegin", fmt.Sprint("ReplaceEnd ", n))
				testkit.OK(t, f.BeginReplace(t.Context(), resource.Relist{}))
				testkit.OK(t, f.EndReplace(t.Context(), obj.Version))
			default:
				added = append(added, fmt.Sprint("Updated a ", n))
				testkit.OK(t, f.Update(t.Context(), obj))
			}
			if dice.IntN(3) == 0 {
				f.Flush()
				time.Sleep(time.Duration(dice.IntN(200)) * time.Microsecond)
			}
			if dice.IntN(3) == 0 {
				synctest.Wait()
			}
		}
		f.Close()
		synctest.Wait()
	})
	testkit.Want(t, s.lines, added...)
	if s.tried == 0 || s.tried == len(added) {
		t.Errorf("%d of %d were tried, want some", s.tried, len(added))
	}
}
