package admin_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/testkit"
)

// ownUser admits the tests themselves as readers.
var ownUser = admin.Access{OwnUser: true}

// start runs a server until the test ends, and gives its URL and how to stop it.
func start(t *testing.T, config admin.Config) (url string, stop func() error) {
	t.Helper()
	config.Address = "127.0.0.1:0"
	config.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	server, err := admin.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if server.Addr() != nil {
		t.Error("it listens before it was asked to")
	}
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("Run does not return")
		}
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + server.Addr().String(), stop
}

func get(t *testing.T, url, accept string) (code int, contentType, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), string(text)
}

// Readiness follows the reasons.
func TestReadiness(t *testing.T) {
	var reasons atomic.Pointer[[]admin.Reason]
	reasons.Store(&[]admin.Reason{
		{What: "informer workloads/pods", Message: "has not synced"},
		{What: "sink lake", Message: "can't reach the broker", Since: time.Now().Add(-200 * time.Second)},
	})
	url, _ := start(t, admin.Config{Ready: func() []admin.Reason { return *reasons.Load() }})

	code, kind, body := get(t, url+"/readyz", "")
	want := "informer workloads/pods: has not synced\nsink lake: can't reach the broker (for 3m20s)\n"
	if code != 503 || body != want || !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("got %d %s\n%s", code, kind, body)
	}
	for _, as := range []struct{ url, accept string }{{url + "/readyz", "application/json"}, {url + "/readyz?format=json", ""}} {
		code, kind, body = get(t, as.url, as.accept)
		var answer struct {
			Ready   bool
			Reasons []admin.Reason
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || code != 503 || kind != "application/json" ||
			answer.Ready || len(answer.Reasons) != 2 || answer.Reasons[0].What != "informer workloads/pods" || strings.Count(body, "since") != 1 {
			t.Errorf("got %d %s %v\n%s", code, kind, err, body)
		}
	}
	if code, _, body = get(t, url+"/healthz", ""); code != 200 || body != "ok\n" {
		t.Errorf("liveness hangs on readiness: %d %s", code, body)
	}

	reasons.Store(new([]admin.Reason))
	if code, _, body = get(t, url+"/readyz", ""); code != 200 || body != "ok\n" {
		t.Errorf("ready: got %d %s", code, body)
	}
	if code, _, body = get(t, url+"/readyz", "application/json"); code != 200 || !strings.Contains(body, `"ready": true`) || !strings.Contains(body, `"reasons": []`) {
		t.Errorf("ready: got %d %s", code, body)
	}
}

// Metrics and status are served.
func TestMetricsAndStatus(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "bridge_test_events_total", Help: "Events."})
	registry.MustRegister(counter)
	counter.Add(3)
	url, _ := start(t, admin.Config{Registry: registry, Status: func() any { return map[string]int{"objects": 7} }, Access: ownUser})
	if code, _, body := get(t, url+"/metrics", ""); code != 200 || !strings.Contains(body, "bridge_test_events_total 3") {
		t.Errorf("metrics: %d\n%s", code, body)
	}
	if code, kind, body := get(t, url+"/status", ""); code != 200 || kind != "application/json" || body != "{\n  \"objects\": 7\n}\n" {
		t.Errorf("status: %d %s %q", code, kind, body)
	}
	if code, _, body := get(t, url+"/", ""); code != 200 || !strings.Contains(body, "/readyz") || strings.Contains(body, "pprof") {
		t.Errorf("index: %d %s", code, body)
	}
	if code, _, _ := get(t, url+"/nothing", ""); code != 404 {
		t.Errorf("an unknown path: %d", code)
	}
}

// A status that can't be encoded is an error, not half a document.
func TestStatusEncodingError(t *testing.T) {
	url, _ := start(t, admin.Config{Status: func() any { return map[string]any{"a": 1, "b": func() {}} }, Access: ownUser})
	if code, _, body := get(t, url+"/status", ""); code != 500 || strings.Contains(body, "{") {
		t.Errorf("got %d %s", code, body)
	}
}

// One failing collector hides no other metric.
func TestFailingCollector(t *testing.T) {
	registry := prometheus.NewRegistry()
	desc := prometheus.NewDesc("bridge_test_broken", "Broken.", nil, nil)
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "bridge_test_fine", Help: "Fine."}, func() float64 { return 1 }), broken{desc})
	url, _ := start(t, admin.Config{Registry: registry})
	if code, _, body := get(t, url+"/metrics", ""); code != 200 || !strings.Contains(body, "bridge_test_fine 1") {
		t.Errorf("got %d %s", code, body)
	}
}

type broken struct{ desc *prometheus.Desc }

func (b broken) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }
func (b broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(b.desc, errors.New("broken"))
}

// Profiles are served only when the configuration asks for them.
func TestProfiles(t *testing.T) {
	with, _ := start(t, admin.Config{Pprof: true, Access: ownUser})
	without, _ := start(t, admin.Config{Access: ownUser})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
		if code, _, _ := get(t, with+path, ""); code != 200 {
			t.Errorf("%s with pprof: %d", path, code)
		}
		if code, _, _ := get(t, without+path, ""); code != 404 {
			t.Errorf("%s without pprof: %d", path, code)
		}
	}
}

func TestOnlyReadingIsAllowed(t *testing.T) {
	url, _ := start(t, admin.Config{})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/status", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", response.StatusCode)
	}
}

// An address in use is reported plainly.
func TestAddressInUse(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	server, err := admin.New(admin.Config{Address: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	err = server.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), listener.Addr().String()+" is in use") || !strings.Contains(err.Error(), "--admin-address") {
		t.Errorf("got %v", err)
	}
}

// An address without a port is refused.
func TestAddressWithoutPort(t *testing.T) {
	if _, err := admin.New(admin.Config{Address: "localhost"}); err == nil || !strings.Contains(err.Error(), "want host:port") {
		t.Errorf("got %v", err)
	}
}

// A stop lets a request finish.
func TestStopDuringRequest(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	url, stop := start(t, admin.Config{Status: func() any { close(entered); <-release; return "done" }, Access: ownUser})
	answered := make(chan string, 1)
	go func() { _, _, body := get(t, url+"/status", ""); answered <- body }()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	testkit.Eventually(t, "no other request is taken", func() bool {
		other, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			other.Close()
		}
		return err != nil
	})
	close(release)
	testkit.OK(t, <-stopped)
	if body := <-answered; body != "\"done\"\n" {
		t.Errorf("got %q", body)
	}
}

// A hanging request does not delay the stop for long.
func TestStopWithHangingRequest(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	url, stop := start(t, admin.Config{Status: func() any { close(entered); <-release; return nil }, Access: ownUser})
	go func() {
		request, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, url+"/status", nil)
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
		}
	}()
	<-entered
	began := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// The page stays small: what a browser loads, as a proxy compresses it.
func TestPageSize(t *testing.T) {
	const most = 60_000
	size := 0
	testkit.OK(t, filepath.WalkDir("page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, writeErr := w.Write(content)
		size += out.Len()
		return errors.Join(err, writeErr, w.Close())
	}))
	if size > most {
		t.Errorf("%d bytes, compressed; want at most %d", size, most)
	}
}

// Marks, lines of plots and badges are seen against their grounds in both schemes: 3 to 1, texts
// 4.5 to 1, as WCAG 2 has it. Marks are drawn on a canvas, which axe-core can't look at.
func TestColours(t *testing.T) {
	css, err := os.ReadFile("page/page.css")
	testkit.OK(t, err)
	light, dark, _ := strings.Cut(string(css), "prefers-color-scheme: dark")
	for name, text := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{3,6});`).FindAllStringSubmatch(text, -1) {
			if colours[m[1]] == "" {
				colours[m[1]] = m[2]
			}
		}
		for _, mark := range []string{"good", "bad", "warn", "bar", "soft", "text", "s1", "s2", "s3", "s4"} {
			for _, ground := range []string{"card", "hit", "hatch"} {
				if c := contrast(t, colours[mark], colours[ground]); c < 3 {
					t.Errorf("%s: --%s on --%s has %.2f", name, mark, ground, c)
				}
			}
		}
		for _, word := range []string{"good", "bad", "warn", "idle"} {
			if c := contrast(t, colours[word], colours[word+"-bg"]); c < 4.5 {
				t.Errorf("%s: a badge of --%s has %.2f", name, word, c)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(hex string) float64 {
		if len(hex) == 3 {
			hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
		}
		n, err := strconv.ParseUint(hex, 16, 32)
		testkit.OK(t, err)
		part := func(shift int) float64 {
			c := float64(n>>shift&255) / 255
			if c <= 0.04045 {
				return c / 12.92
			}
			return math.Pow((c+0.055)/1.055, 2.4)
		}
		return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}
