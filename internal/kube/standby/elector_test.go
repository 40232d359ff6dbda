package standby_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

// fault is what happens to one request: before it reaches the server, and on the way back.
type fault struct {
	lose  error // the request does not arrive
	hang  bool  // it does not arrive, and there is no answer until its context ends
	reply error // it is done, and its answer is this
}

// faulty is the way of one client to the Leases. Faults are taken in order, by kind of request;
// after them all is well.
type faulty struct {
	standby.Leases
	mu     sync.Mutex
	gets   []fault
	writes []fault
	asked  int // requests of both kinds
}

func (f *faulty) next(list *[]fault) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if len(*list) == 0 {
		return fault{}
	}
	first := (*list)[0]
	*list = (*list)[1:]
	return first
}

func (f *faulty) do(
	ctx context.Context, list *[]fault, do func() (*coordinationv1.Lease, error),
) (*coordinationv1.Lease, error) {
	fault := f.next(list)
	if fault.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if fault.lose != nil {
		return nil, fault.lose
	}
	lease, err := do()
	if fault.reply != nil {
		return nil, fault.reply
	}
	return lease, err
}

func (f *faulty) Get(ctx context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	return f.do(ctx, &f.gets, func() (*coordinationv1.Lease, error) {
		return f.Leases.Get(ctx, namespace, name)
	})
}

func (f *faulty) Create(
	ctx context.Context, l *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	return f.do(ctx, &f.writes, func() (*coordinationv1.Lease, error) {
		return f.Leases.Create(ctx, l)
	})
}

func (f *faulty) Update(
	ctx context.Context, l *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	return f.do(ctx, &f.writes, func() (*coordinationv1.Lease, error) {
		return f.Leases.Update(ctx, l)
	})
}

// fail sets the faults of the next requests.
func (f *faulty) fail(gets, writes []fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets, f.writes = gets, writes
}

// voter is a process that takes part over a way with faults.
type voter struct {
	*standby.Lease
	way  *faulty
	stop context.CancelFunc
	done chan error
}

func vote(t *testing.T, server *testkit.Leases, identity string) *voter {
	t.Helper()
	return voteOver(t, &faulty{Leases: server.Client()}, identity)
}

func voteOver(t *testing.T, way *faulty, identity string) *voter {
	t.Helper()
	v := &voter{way: way, done: make(chan error, 1)}
	var err error
	v.Lease, err = standby.NewLease(standby.LeaseConfig{
		Client: way, Namespace: "tools", Name: "bridge", Identity: identity,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	testkit.OK(t, err)
	var ctx context.Context
	ctx, v.stop = context.WithCancel(t.Context())
	go func() { v.done <- v.Run(ctx) }()
	synctest.Wait()
	return v
}

func (v *voter) leads() bool {
	select {
	case <-v.Elected():
		return true
	default:
		return false
	}
}

// stored is the Lease as the server has it.
func stored(t *testing.T, server *testkit.Leases) *coordinationv1.Lease {
	t.Helper()
	lease, err := server.Client().Get(t.Context(), "tools", "bridge")
	testkit.OK(t, err)
	return lease
}

// edit writes to the Lease as somebody else.
func edit(t *testing.T, server *testkit.Leases, change func(*coordinationv1.Lease)) {
	t.Helper()
	lease := stored(t, server)
	change(lease)
	_, err := server.Client().Update(t.Context(), lease)
	testkit.OK(t, err)
}

// held makes a Lease as another process has written it, with the times of its own clock.
func held(t *testing.T, server *testkit.Leases, seconds int32, clock time.Time) {
	t.Helper()
	now := metav1.NewMicroTime(clock)
	_, err := server.Client().Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tools", Name: "bridge"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("silent"), LeaseDurationSeconds: &seconds,
			AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(4)),
		},
	})
	testkit.OK(t, err)
}

// TestARecord has in it what client-go's leaderelection writes.
func TestARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewLeases()
		began := time.Now()
		first := vote(t, server, "first")
		check := func(when, holder string, seconds, transitions int32, acquired, renewed time.Time) {
			t.Helper()
			s := &stored(t, server).Spec
			if *s.HolderIdentity != holder || *s.LeaseDurationSeconds != seconds ||
				*s.LeaseTransitions != transitions || !s.AcquireTime.Time.Equal(acquired) ||
				!s.RenewTime.Time.Equal(renewed) || s.Strategy != nil || s.PreferredHolder != nil {
				t.Errorf("%s: got %s, %d s, %d transitions, acquired at %v, renewed at %v", when,
					*s.HolderIdentity, *s.LeaseDurationSeconds, *s.LeaseTransitions,
					s.AcquireTime.Sub(began), s.RenewTime.Sub(began))
			}
		}
		check("created", "first", 15, 0, began, began)
		time.Sleep(750 * time.Millisecond)
		check("renewed", "first", 15, 0, began, began.Add(500*time.Millisecond))
		edit(t, server, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"team": "a"} })
		time.Sleep(500 * time.Millisecond)
		check("renewed after an edit", "first", 15, 0, began, began.Add(time.Second))
		if stored(t, server).Labels["team"] != "a" {
			t.Error("what somebody else wrote is lost")
		}
		first.Release()
		first.stop()
		testkit.OK(t, <-first.done)
		now := time.Now()
		check("released", "", 1, 0, now, now)
		time.Sleep(time.Second)
		second := vote(t, server, "second")
		now = time.Now()
		check("taken by another", "second", 15, 1, now, now)
		second.stop()
		testkit.OK(t, <-second.done)
		check("not released", "second", 15, 1, now, now)
	})
}

// TestACandidate finds a lease in some state.
func TestACandidate(t *testing.T) {
	for name, tt := range map[string]struct {
		given    func(t *testing.T, server *testkit.Leases)
		later    func(t *testing.T, server *testkit.Leases) // after ten seconds
		from, to time.Duration                              // when it leads
	}{
		"takes a lease that is missing": {},
		"takes a vacant one": {given: func(t *testing.T, s *testkit.Leases) {
			held(t, s, 15, time.Now())
			edit(t, s, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") })
		}},
		"takes one that says nothing": {given: func(t *testing.T, s *testkit.Leases) {
			held(t, s, 15, time.Now())
			edit(t, s, func(l *coordinationv1.Lease) { l.Spec = coordinationv1.LeaseSpec{} })
		}},
		"waits a full duration for a silent holder": {
			given: func(t *testing.T, s *testkit.Leases) { held(t, s, 15, time.Now()) },
			from:  15 * time.Second, to: 16100 * time.Millisecond,
		},
		"waits for the duration that the holder has written": {
			given: func(t *testing.T, s *testkit.Leases) { held(t, s, 40, time.Now()) },
			from:  40 * time.Second, to: 41100 * time.Millisecond,
		},
		"waits for its own duration where none is written": {
			given: func(t *testing.T, s *testkit.Leases) { held(t, s, 0, time.Now()) },
			from:  15 * time.Second, to: 16100 * time.Millisecond,
		},
		"is not fooled by a clock that is behind": {
			given: func(t *testing.T, s *testkit.Leases) {
				held(t, s, 15, time.Now().Add(-time.Hour))
			},
			from: 15 * time.Second, to: 16100 * time.Millisecond,
		},
		"is not fooled by a clock that is ahead": {
			given: func(t *testing.T, s *testkit.Leases) {
				held(t, s, 15, time.Now().Add(time.Hour))
			},
			from: 15 * time.Second, to: 16100 * time.Millisecond,
		},
		"waits again after a renewal, though the clock shows the same second": {
			given: func(t *testing.T, s *testkit.Leases) { held(t, s, 15, time.Now()) },
			later: func(t *testing.T, s *testkit.Leases) {
				edit(t, s, func(l *coordinationv1.Lease) {
					l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(time.Millisecond)
				})
			},
			from: 25 * time.Second, to: 27200 * time.Millisecond,
		},
		"does not wait longer because somebody wrote a label": {
			given: func(t *testing.T, s *testkit.Leases) { held(t, s, 15, time.Now()) },
			later: func(t *testing.T, s *testkit.Leases) {
				edit(t, s, func(l *coordinationv1.Lease) {
					l.Labels = map[string]string{"team": "a"}
				})
			},
			from: 15 * time.Second, to: 16100 * time.Millisecond,
		},
		"takes at once what is released": {
			given: func(t *testing.T, s *testkit.Leases) { held(t, s, 15, time.Now()) },
			later: func(t *testing.T, s *testkit.Leases) {
				edit(t, s, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") })
			},
			from: 10 * time.Second, to: 11100 * time.Millisecond,
		},
		"leaves one that somebody deletes to its holder as long": {
			given: func(t *testing.T, s *testkit.Leases) { held(t, s, 15, time.Now()) },
			later: func(_ *testing.T, s *testkit.Leases) { s.Delete("tools", "bridge") },
			from:  15 * time.Second, to: 16100 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewLeases()
				if tt.given != nil {
					tt.given(t, server)
				}
				began := time.Now()
				c := vote(t, server, "candidate")
				if tt.later != nil {
					time.Sleep(10 * time.Second)
					tt.later(t, server)
				}
				<-c.Elected()
				if took := time.Since(began); took < tt.from || took > tt.to {
					t.Errorf("it leads after %v, want %v to %v", took, tt.from, tt.to)
				}
				testkit.OK(t, c.Gate())
				c.stop()
				testkit.OK(t, <-c.done)
			})
		})
	}
}

// The answers of an API server, or of what stands before it.
var (
	leases    = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	conflict  = apierrors.NewConflict(leases, "bridge", errors.New("it was modified"))
	broken    = apierrors.NewInternalError(errors.New("broken"))
	busy      = apierrors.NewTooManyRequests("busy", 1)
	forbidden = apierrors.NewForbidden(leases, "bridge", errors.New("no"))
	timeout   = apierrors.NewTimeoutError("late", 1)
	proxy     = apierrors.NewGenericServerResponse(http.StatusBadGateway, "PUT", leases, "bridge",
		"", 0, true)
)

func TestACandidateWithFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		gets, writes []fault
		exists       bool // the lease, which is vacant
		to           time.Duration
	}{
		"can't read":             {gets: []fault{{lose: broken}, {lose: busy}}, to: 2200 * time.Millisecond},
		"may not read":           {gets: []fault{{lose: forbidden}}, to: 1100 * time.Millisecond},
		"can't create":           {writes: []fault{{lose: proxy}}, to: 1100 * time.Millisecond},
		"can't update":           {writes: []fault{{lose: timeout}}, exists: true, to: 1100 * time.Millisecond},
		"another was faster":     {writes: []fault{{lose: conflict}}, exists: true, to: 1100 * time.Millisecond},
		"the answer was lost":    {writes: []fault{{reply: timeout}}, exists: true, to: 1100 * time.Millisecond},
		"that of a create, too":  {writes: []fault{{reply: context.DeadlineExceeded}}, to: 1100 * time.Millisecond},
		"a connection was reset": {writes: []fault{{reply: testkit.ErrCut}}, to: 1100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewLeases()
				if tt.exists {
					held(t, server, 15, time.Now())
					edit(t, server, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") })
				}
				way := &faulty{Leases: server.Client(), gets: tt.gets, writes: tt.writes}
				began := time.Now()
				c := voteOver(t, way, "candidate")
				if c.leads() || c.Gate() == nil {
					t.Error("it leads, though it does not know that it has the lease")
				}
				<-c.Elected()
				if took := time.Since(began); took < 500*time.Millisecond || took > tt.to {
					t.Errorf("it leads after %v", took)
				}
				testkit.OK(t, c.Gate())
				c.stop()
				testkit.OK(t, <-c.done)
			})
		})
	}
}

// TestALeader has an election run, and then a fault.
func TestALeader(t *testing.T) {
	repeat := func(f fault, times int) (list []fault) {
		for range times {
			list = append(list, f)
		}
		return list
	}
	for name, tt := range map[string]struct {
		gets, writes []fault
		event        func(t *testing.T, server *testkit.Leases)
		lost         bool
		from, to     time.Duration // when it is lost
	}{
		"continues after a conflict":          {writes: []fault{{lose: conflict}}},
		"continues after an answer was lost":  {writes: []fault{{reply: timeout}}},
		"continues after errors for a while":  {writes: repeat(fault{lose: broken}, 15), gets: repeat(fault{lose: busy}, 15)},
		"continues after a request that hung": {writes: []fault{{lose: context.DeadlineExceeded}}},
		"continues when somebody writes a label": {event: func(t *testing.T, s *testkit.Leases) {
			edit(t, s, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"team": "a"} })
		}},
		"creates a lease that somebody deletes": {event: func(_ *testing.T, s *testkit.Leases) {
			s.Delete("tools", "bridge")
		}},
		"loses by the deadline": {
			writes: repeat(fault{lose: broken}, 100), gets: repeat(fault{lose: broken}, 100),
			lost: true, from: 9500 * time.Millisecond, to: 10500 * time.Millisecond,
		},
		"loses by the deadline when requests hang": {
			writes: repeat(fault{hang: true}, 100),
			lost:   true, from: 9500 * time.Millisecond, to: 10500 * time.Millisecond,
		},
		"loses by the deadline when it may only read": {
			writes: repeat(fault{lose: forbidden}, 100),
			lost:   true, from: 9500 * time.Millisecond, to: 10500 * time.Millisecond,
		},
		"loses at once when another has it": {
			event: func(t *testing.T, s *testkit.Leases) {
				edit(t, s, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("other") })
			},
			lost: true, to: 500 * time.Millisecond,
		},
		"loses at once when another had it, and has released it": {
			event: func(t *testing.T, s *testkit.Leases) {
				edit(t, s, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") })
			},
			lost: true, to: 500 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewLeases()
				leader := vote(t, server, "leader")
				time.Sleep(10*time.Second + 250*time.Millisecond)
				testkit.OK(t, leader.Gate())
				began := time.Now()
				if leader.way.fail(tt.gets, tt.writes); tt.event != nil {
					tt.event(t, server)
				}
				if !tt.lost {
					time.Sleep(time.Minute)
					testkit.OK(t, leader.Gate())
					testkit.OK(t, leader.Confirm(t.Context()))
					if s := stored(t, server).Spec; *s.LeaseTransitions != 0 {
						t.Errorf("got %d transitions, though the leader is the same",
							*s.LeaseTransitions)
					}
					leader.stop()
					testkit.OK(t, <-leader.done)
					return
				}
				if err := <-leader.done; !errors.Is(err, standby.ErrLost) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took < tt.from || took > tt.to {
					t.Errorf("lost after %v, want %v to %v", took, tt.from, tt.to)
				}
				if leader.Gate() == nil {
					t.Error("it may still publish")
				}
			})
		})
	}
}

// TestARelease ends a leader with the lease given up, or not.
func TestARelease(t *testing.T) {
	for name, tt := range map[string]struct {
		allowed      bool
		gets, writes []fault
		event        func(t *testing.T, server *testkit.Leases)
		want         string // the holder after it
	}{
		"if it was allowed":      {allowed: true, want: ""},
		"not otherwise":          {want: "leader"},
		"again after a conflict": {allowed: true, writes: []fault{{lose: conflict}}, want: ""},
		"not when the server does not answer": {
			allowed: true, gets: []fault{{lose: broken}}, want: "leader",
		},
		"not when it fails": {
			allowed: true, writes: []fault{{lose: broken}}, want: "leader",
		},
		"not what another has": {
			allowed: true, want: "other",
			event: func(t *testing.T, s *testkit.Leases) {
				edit(t, s, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("other") })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewLeases()
				leader := vote(t, server, "leader")
				time.Sleep(10*time.Second + 250*time.Millisecond)
				if tt.allowed {
					leader.Release()
				}
				leader.way.fail(tt.gets, tt.writes)
				if tt.event != nil {
					tt.event(t, server)
				}
				began := time.Now()
				leader.stop()
				testkit.OK(t, <-leader.done)
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v", took)
				}
				if holder := *stored(t, server).Spec.HolderIdentity; holder != tt.want {
					t.Errorf("%q has the lease, want %q", holder, tt.want)
				}
			})
		})
	}
}

// TestManyCandidates has leaders die again and again. Never may two publish.
func TestManyCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewLeases()
		var all []*voter
		for _, identity := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, vote(t, server, identity))
		}
		open := func() (list []*voter) {
			for _, v := range all {
				if v.Gate() == nil {
					list = append(list, v)
				}
			}
			return list
		}
		for round := range len(all) {
			for began := time.Now(); len(open()) == 0; time.Sleep(5 * time.Millisecond) {
				if time.Since(began) > 20*time.Second {
					t.Fatalf("round %d: nobody leads", round)
				}
			}
			time.Sleep(3 * time.Second)
			leaders := open()
			if len(leaders) != 1 || !leaders[0].leads() {
				t.Fatalf("round %d: %d may publish", round, len(leaders))
			}
			leader := leaders[0]
			switch round % 2 {
			case 0: // cut off
				leader.way.mu.Lock()
				leader.way.Leases.(*testkit.LeaseClient).Cut(true)
				leader.way.mu.Unlock()
				for range 4000 {
					time.Sleep(5 * time.Millisecond)
					if len(open()) > 1 {
						t.Fatalf("round %d: two may publish", round)
					}
				}
			default: // stopped in order
				leader.Release()
				leader.stop()
			}
			<-leader.done
		}
		if s := stored(t, server).Spec; *s.LeaseTransitions != int32(len(all)-1) {
			t.Errorf("got %d transitions, want one for each new leader", *s.LeaseTransitions)
		}
		for _, v := range all {
			v.stop()
		}
	})
}

// TestQuietRenewals are one request each: nobody else writes to the object.
func TestQuietRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := vote(t, testkit.NewLeases(), "leader")
		time.Sleep(time.Minute + 250*time.Millisecond)
		leader.stop()
		testkit.OK(t, <-leader.done)
		if asked := leader.way.asked; asked != 2+120 {
			t.Errorf("%d requests, want a read, a create, and one each 500 ms", asked)
		}
	})
}

func TestDurationsThatAreUnsafe(t *testing.T) {
	for name, c := range map[string]standby.LeaseConfig{
		"no time between deadline and duration": {Duration: 10 * time.Second},
		"none in whole seconds": {
			Duration: 10999 * time.Millisecond, RenewDeadline: 10500 * time.Millisecond,
		},
		"one attempt only": {RetryPeriod: 9 * time.Second},
		"negative":         {RetryPeriod: -time.Second},
	} {
		c.Client, c.Namespace, c.Name, c.Identity = testkit.NewLeases().Client(), "tools", "bridge", "a"
		if _, err := standby.NewLease(c); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}
