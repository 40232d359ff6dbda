package ratelimit_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

func newQueue[K comparable]() *ratelimit.Queue[K] {
	return ratelimit.NewQueue(ratelimit.Exponential[K](100*time.Millisecond, 30*time.Second))
}

// get is GetBatch for one key.
func get[K comparable](ctx context.Context, q *ratelimit.Queue[K]) (key K, err error) {
	keys, err := q.GetBatch(ctx, nil, 1)
	if err != nil {
		return key, err
	}
	return keys[0], nil
}

func mustGet[K comparable](t *testing.T, q *ratelimit.Queue[K], want K) {
	t.Helper()
	key, err := get(t.Context(), q)
	if err != nil || key != want {
		t.Fatalf("Get = %v, %v; want %v", key, err, want)
	}
}

func wantLen[K comparable](t *testing.T, q *ratelimit.Queue[K], want int) {
	t.Helper()
	if got := q.Len(); got != want {
		t.Fatalf("Len = %d, want %d", got, want)
	}
}

// wantEmpty checks that Get would block.
func wantEmpty[K comparable](t *testing.T, q *ratelimit.Queue[K]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if key, err := get(ctx, q); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Get = %v, %v; want it to block", key, err)
	}
}

// Many producers and consumers empty the queue.
// Upstream: TestBasic.
func TestManyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int]()
		var producers, consumers sync.WaitGroup
		for i := range 50 {
			producers.Go(func() {
				for range 50 {
					q.Add(i)
					time.Sleep(time.Millisecond)
				}
			})
		}
		var mu sync.Mutex
		held, got := map[int]bool{}, map[int]int{}
		for range 10 {
			consumers.Go(func() {
				for {
					key, err := get(t.Context(), q)
					if err != nil {
						return
					}
					mu.Lock()
					if held[key] {
						t.Errorf("key %d is with two workers", key)
					}
					held[key] = true
					got[key]++
					mu.Unlock()
					time.Sleep(3 * time.Millisecond)
					mu.Lock()
					held[key] = false
					mu.Unlock()
					q.Done(key)
				}
			})
		}
		producers.Wait()
		q.ShutDown()
		q.Add(1000) // after the shutdown: ignored
		consumers.Wait()
		wantLen(t, q, 0)
		for i := range 50 {
			if got[i] == 0 {
				t.Errorf("key %d was never handed out", i)
			}
		}
		if got[1000] != 0 {
			t.Error("a key added after the shutdown was handed out")
		}
	})
}

// Keys that are added by their workers come again.
// Upstream: TestAddWhileProcessing.
func TestAddByWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int]()
		var consumers sync.WaitGroup
		var mu sync.Mutex
		counts := map[int]int{}
		for range 10 {
			consumers.Go(func() {
				for {
					key, err := get(t.Context(), q)
					if err != nil {
						return
					}
					mu.Lock()
					counts[key]++
					again := counts[key] < 3
					mu.Unlock()
					if again {
						q.Add(key)
					}
					q.Done(key)
				}
			})
		}
		for i := range 50 {
			q.Add(i)
		}
		q.ShutDown()
		consumers.Wait()
		for i := range 50 {
			if counts[i] != 3 {
				t.Errorf("key %d was handed out %d times, want 3", i, counts[i])
			}
		}
	})
}

// Upstream: TestLen.
func TestLenOfKeys(t *testing.T) {
	q := newQueue[string]()
	q.Add("foo")
	wantLen(t, q, 1)
	q.Add("bar")
	wantLen(t, q, 2)
	q.Add("foo")
	wantLen(t, q, 2)
}

// A key that is added while it is processed comes again.
// Upstream: TestReinsert.
func TestAddInProcessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.Add("foo")
		mustGet(t, q, "foo")
		q.Add("foo")
		wantEmpty(t, q)
		q.Done("foo")
		mustGet(t, q, "foo")
		q.Done("foo")
		wantLen(t, q, 0)
	})
}

// Upstream: TestCollapse.
func TestTwoAddsCollapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.Add("bar", "bar")
		mustGet(t, q, "bar")
		q.Done("bar")
		wantEmpty(t, q)
	})
}

// Adds while a key is processed collapse, and wait for Done.
// Upstream: TestCollapseWhileProcessing.
func TestCollapseInProcessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.Add("foo")
		mustGet(t, q, "foo")
		q.Add("foo")
		q.Add("foo")
		var second time.Time
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustGet(t, q, "foo")
			second = time.Now()
			q.Done("foo")
		}()
		time.Sleep(100 * time.Millisecond)
		finished := time.Now()
		q.Done("foo")
		<-done
		if !second.Equal(finished) {
			t.Errorf("second worker got the key at %v, the first finished at %v", second, finished)
		}
		wantEmpty(t, q)
	})
}

// Upstream: TestNoQueueDrainageUsingShutDown.
func TestShutDown(t *testing.T) {
	q := newQueue[string]()
	q.Add("foo", "bar")
	mustGet(t, q, "foo")
	mustGet(t, q, "bar")
	q.ShutDown() // the test hangs if it waits
}

// Upstream: TestQueueDrainageUsingShutDownWithDrainWithDirtyItem.
func TestReAddAtShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[string]()
		q.Add("foo")
		mustGet(t, q, "foo")
		q.Add("foo")
		q.ShutDown()
		q.Done("foo")
		mustGet(t, q, "foo")
		q.Done("foo")
		if _, err := get(t.Context(), q); !errors.Is(err, ratelimit.ErrShutDown) {
			t.Fatalf("get = %v, want ErrShutDown", err)
		}
	})
}

// Upstream: TestGarbageCollection.
func TestDoneKeyCollected(t *testing.T) {
	q := newQueue[*[64]byte]()
	collected := make(chan struct{})
	func() {
		key := new([64]byte)
		runtime.AddCleanup(key, func(c chan struct{}) { close(c) }, collected)
		q.Add(key)
		mustGet(t, q, key)
		q.Done(key)
	}()
	for range 1000 {
		runtime.GC()
		select {
		case <-collected:
			runtime.KeepAlive(q)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("the queue keeps the key alive")
}

// GetBatch takes the keys that are there, in order.
func TestGetBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int]()
		q.Add(1, 2, 3, 4, 5)
		batch, err := q.GetBatch(t.Context(), nil, 3)
		if err != nil || !slices.Equal(batch, []int{1, 2, 3}) {
			t.Fatalf("GetBatch = %v, %v", batch, err)
		}
		rest, err := q.GetBatch(t.Context(), nil, 3)
		if err != nil || !slices.Equal(rest, []int{4, 5}) {
			t.Fatalf("GetBatch = %v, %v", rest, err)
		}
		q.Add(2)
		q.Done(batch...)
		mustGet(t, q, 2)
	})
}

// Returned keys come first, and in order.
func TestReturnedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int]()
		q.Add(1, 2, 3, 4)
		batch, _ := q.GetBatch(t.Context(), nil, 3)
		q.Add(2) // collapses with the returned one
		q.Return(batch[1:]...)
		q.Done(1)
		got, _ := q.GetBatch(t.Context(), nil, 9)
		if !slices.Equal(got, []int{2, 3, 4}) {
			t.Fatalf("after Return: %v, want 2 3 4", got)
		}
		q.Done(got...)
		wantEmpty(t, q)
	})
}

// Every waiting worker is woken up.
func TestWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int]()
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				if _, err := get(t.Context(), q); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		q.Add(1, 2, 3, 4, 5, 6, 7, 8)
		workers.Wait()

		for range 8 { // and all of them learn of the shutdown
			workers.Go(func() {
				if _, err := get(t.Context(), q); !errors.Is(err, ratelimit.ErrShutDown) {
					t.Errorf("Get = %v, want ErrShutDown", err)
				}
			})
		}
		synctest.Wait()
		q.ShutDown()
		workers.Wait()
	})
}

// A worker that gives up passes its wake-up on.
func TestWakeUpPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			q := newQueue[int]()
			ctx, cancel := context.WithCancel(t.Context())
			var workers sync.WaitGroup
			workers.Go(func() {
				if _, err := get(ctx, q); err == nil {
					q.Return(1)
				}
			})
			synctest.Wait() // it is the first to be woken
			workers.Go(func() { mustGet(t, q, 1) })
			synctest.Wait()
			q.Add(1)
			cancel()
			workers.Wait()
		}
	})
}
