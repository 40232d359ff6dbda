package reflector_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	pods    = testkit.Pods
	widgets = resource.Type{
		Group: "example.com", Version: "v1", Resource: "widgets",
		Kind: "Widget", Namespaced: true,
	}
	secrets = resource.Type{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}
)

// recorder is a Store that writes down its calls: "add shop/a@99".
type recorder struct {
	mu      sync.Mutex
	calls   []string
	objects []*resource.Object
	block   chan struct{} // calls wait here when set
	fail    func(call string) error

	quarantined []string
	unreadable  []*resource.Unreadable
}

func (s *recorder) note(ctx context.Context, call string, obj *resource.Object) error {
	s.mu.Lock()
	block, fail := s.block, s.fail
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fail != nil {
		if err := fail(call); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	if obj != nil {
		s.objects = append(s.objects, obj)
	}
	return nil
}

func (s *recorder) object(ctx context.Context, verb string, obj *resource.Object) error {
	return s.note(ctx, fmt.Sprintf("%s %s@%s", verb, obj.Key(), obj.Version), obj)
}

func (s *recorder) Add(ctx context.Context, obj *resource.Object) error {
	return s.object(ctx, "add", obj)
}

func (s *recorder) Update(ctx context.Context, obj *resource.Object) error {
	return s.object(ctx, "update", obj)
}

func (s *recorder) Delete(ctx context.Context, obj *resource.Object) error {
	return s.object(ctx, "delete", obj)
}

func (s *recorder) Replace(ctx context.Context, obj *resource.Object) error {
	return s.object(ctx, "replace", obj)
}

func (s *recorder) Bookmark(ctx context.Context, v resource.Version) error {
	return s.note(ctx, "bookmark "+string(v), nil)
}

func (s *recorder) Skip(ctx context.Context, of resource.Identity) error {
	return s.note(ctx, strings.TrimSpace("skip "+string(of.Key)), nil)
}

func (s *recorder) Quarantine(_ context.Context, u *resource.Unreadable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quarantined = append(s.quarantined, fmt.Sprintf("%s | %s", u.Raw, u.Message))
	s.unreadable = append(s.unreadable, u)
	return nil
}

// Progress is about what is not handed on.
func (s *recorder) Progress(context.Context, resource.Version) error { return nil }

func (s *recorder) Unselected(ctx context.Context, obj *resource.Object, gone bool) error {
	if gone {
		return s.object(ctx, "gone", obj)
	}
	return s.object(ctx, "left", obj)
}

func (s *recorder) Flush() {}

func (s *recorder) EndReplace(ctx context.Context, v resource.Version) error {
	return s.note(ctx, "end "+string(v), nil)
}

func (s *recorder) BeginReplace(ctx context.Context, why resource.Relist) error {
	call := fmt.Sprintf("begin %s %s..%s", why.Reason, why.From, why.To)
	if why.Quiet {
		call += " quiet"
	}
	if why.Initial() {
		call = "begin initial"
	}
	if why.Rewound() {
		call += " rewound"
	}
	return s.note(ctx, call, nil)
}

// take gives what was called since the last take.
func (s *recorder) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *recorder) last() *resource.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[len(s.objects)-1]
}

func (s *recorder) set(change func(*recorder)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// cluster is a server, a reflector that follows it, and what the reflector reported.
type cluster struct {
	*testkit.Server
	t     *testing.T
	store *recorder
	refl  *reflector.Reflector
	reg   *prometheus.Registry

	cancel context.CancelFunc
	result chan error
}

// newCluster makes the server; follow starts the reflector.
func newCluster(t *testing.T, typ resource.Type) *cluster {
	t.Helper()
	return &cluster{
		Server: testkit.NewServer(t, typ), t: t, store: &recorder{},
		reg: prometheus.NewRegistry(), result: make(chan error, 1),
	}
}

// follow starts a reflector, by default one that begins with a snapshot, and waits until it has
// nothing to do.
func (c *cluster) follow(typ resource.Type, change func(*reflector.Config)) {
	c.t.Helper()
	cfg := reflector.Config{
		Client:     &reflector.Client{HTTP: c.HTTP(), Base: c.URL()},
		Store:      c.store,
		Type:       typ,
		Snapshot:   true,
		Registerer: c.reg,
		Log: slog.New(slog.NewTextHandler(c.t.Output(),
			&slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if c.refl, err = reflector.New(cfg); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	c.cancel = cancel
	go func() { c.result <- c.refl.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-c.result; err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
}

// from lets the reflector resume at the server's present version.
func (c *cluster) from(v resource.Version) func(*reflector.Config) {
	return func(cfg *reflector.Config) { cfg.From = v }
}

// expect waits until nothing happens and checks what the store got since the last time.
func (c *cluster) expect(want ...string) {
	c.t.Helper()
	synctest.Wait()
	if got := c.store.take(); !slices.Equal(got, want) {
		c.t.Errorf("the store got\n  %s\nwant\n  %s", strings.Join(got, "\n  "),
			strings.Join(want, "\n  "))
	}
}

// later lets time pass.
func (c *cluster) later(d time.Duration) {
	c.t.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// expectRequests checks how many requests of a kind were made in all.
func (c *cluster) expectRequests(match testkit.Match, want int, what string) {
	c.t.Helper()
	if got := len(c.Requests(match)); got != want {
		c.t.Errorf("%d %s, want %d", got, what, want)
	}
}

// expectAttempts is expectRequests, but for what net/http sends again at once by itself, when a
// connection that was used before is cut.
func (c *cluster) expectAttempts(match testkit.Match, want int, what string) {
	c.t.Helper()
	attempts := map[time.Time]bool{}
	for _, r := range c.Requests(match) {
		attempts[r.Time] = true
	}
	if got := len(attempts); got != want {
		c.t.Errorf("%d times %s, want %d", got, what, want)
	}
}

// metric is the value of a counter, the sum over all labels unless one is given.
func (c *cluster) metric(name, label string) (sum float64) {
	c.t.Helper()
	for series, value := range testkit.Metrics(c.t, c.reg) {
		series, first, _ := strings.Cut(series, " ")
		if series == "bridge_reflector_"+name && (label == "" || first == label) {
			sum += value
		}
	}
	return sum
}

func (c *cluster) create(keys ...resource.Key) {
	for _, key := range keys {
		c.Create(key, nil)
	}
}

// run runs a test in a bubble of its own time.
func run(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
