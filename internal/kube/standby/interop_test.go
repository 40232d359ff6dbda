package standby_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

// typed is a client of Leases in the form of client-go's clientset.
type typed struct {
	coordination.LeaseInterface // nil: what is not asked for
	leases                      standby.Leases
	namespace                   string
}

func (c typed) Leases(namespace string) coordination.LeaseInterface {
	c.namespace = namespace
	return c
}

func (c typed) Get(
	ctx context.Context, name string, _ metav1.GetOptions,
) (*coordinationv1.Lease, error) {
	return c.leases.Get(ctx, c.namespace, name)
}

func (c typed) Create(
	ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	return c.leases.Create(ctx, l)
}

func (c typed) Update(
	ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	return c.leases.Update(ctx, l)
}

// theirs is a process that takes part by client-go's leaderelection.
type theirs struct {
	*leaderelection.LeaderElector
	client *testkit.LeaseClient
	stop   context.CancelFunc
	done   chan struct{}
}

func theirVote(t *testing.T, server *testkit.Leases, identity string) *theirs {
	t.Helper()
	v := &theirs{client: server.Client(), done: make(chan struct{})}
	var err error
	v.LeaderElector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "tools", Name: "bridge"},
			Client:     typed{leases: v.client},
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second,
		RetryPeriod: 500 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {},
		},
	})
	testkit.OK(t, err)
	var ctx context.Context
	ctx, v.stop = context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	go func() {
		defer close(v.done)
		v.Run(ctx)
	}()
	synctest.Wait()
	return v
}

// TestOneElectionWithClientGo has both take part in one: replicas of an older bridge, or what
// somebody else has written, read the same records.
func TestOneElectionWithClientGo(t *testing.T) {
	for name, tt := range map[string]struct {
		cut      bool // else it ends in order
		from, to time.Duration
	}{
		"a release is taken at once": {to: 1200 * time.Millisecond},
		"a silent leader is waited for": {
			cut: true, from: 14 * time.Second, to: 17500 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewLeases()
				took := func(became func() bool) {
					t.Helper()
					began := time.Now()
					for !became() && time.Since(began) < time.Minute {
						time.Sleep(10 * time.Millisecond)
					}
					if d := time.Since(began); d < tt.from || d > tt.to {
						t.Errorf("it took %v, want %v to %v", d, tt.from, tt.to)
					}
				}
				first := theirVote(t, server, "theirs")
				time.Sleep(10 * time.Millisecond)
				ours := vote(t, server, "ours")
				time.Sleep(time.Minute + 250*time.Millisecond)
				if ours.leads() || ours.Leader() != "theirs" || !first.IsLeader() {
					t.Fatalf("ours leads: %t; it sees %q", ours.leads(), ours.Leader())
				}
				if tt.cut {
					first.client.Cut(true)
				} else {
					first.stop()
				}
				took(ours.leads)
				<-first.done
				second := theirVote(t, server, "theirs again")
				time.Sleep(time.Minute + 250*time.Millisecond)
				testkit.OK(t, ours.Gate())
				if second.GetLeader() != "ours" {
					t.Errorf("client-go sees %q lead", second.GetLeader())
				}
				if tt.cut {
					ours.way.Leases.(*testkit.LeaseClient).Cut(true)
				} else {
					ours.Release()
					ours.stop()
				}
				took(func() bool {
					if second.IsLeader() && ours.Gate() == nil {
						t.Fatal("both may publish")
					}
					return second.IsLeader()
				})
				<-ours.done
				if s := stored(t, server).Spec; *s.LeaseTransitions != 2 {
					t.Errorf("got %d transitions", *s.LeaseTransitions)
				}
				second.stop()
				<-second.done
			})
		})
	}
}
