package admin_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/app/admin"
)

const token = "s3cret-of-the-bridge"

// controller notes what it is asked for.
type controller struct {
	mu    sync.Mutex
	asked []string // guarded by mu
	err   error
}

func (c *controller) note(by admin.Caller, words ...string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, by.User+": "+strings.Join(words, " "))
	return "done", c.err
}

func (c *controller) calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *controller) Pause(_ context.Context, by admin.Caller, kind, name string) (string, error) {
	return c.note(by, "pause", kind, name)
}

func (c *controller) Resume(_ context.Context, by admin.Caller, kind, name string) (string, error) {
	return c.note(by, "resume", kind, name)
}

func (c *controller) Snapshot(_ context.Context, by admin.Caller, w admin.SnapshotRequest) (string, error) {
	return c.note(by, "snapshot", w.Informer, w.Resource, w.Namespace, w.Selector, w.Sink, w.Owner, w.Node)
}

func (c *controller) SetLogLevel(_ context.Context, by admin.Caller, level string) (string, error) {
	return c.note(by, "log-level", level)
}

func (c *controller) Reload(_ context.Context, by admin.Caller) (string, error) {
	return c.note(by, "reload")
}

func (c *controller) SendUndelivered(_ context.Context, by admin.Caller, sink string, ids []string) (admin.Resent, error) {
	message, err := c.note(by, "undelivered", sink, strings.Join(ids, "+"))
	return admin.Resent{Message: message, Done: ids, Kept: []admin.KeptEvent{}}, err
}

func (c *controller) SendDeadLetters(_ context.Context, by admin.Caller, sink string, ids []string) (admin.Resent, error) {
	message, err := c.note(by, "deadletters", sink, strings.Join(ids, "+"))
	return admin.Resent{Message: message, Done: ids, Kept: []admin.KeptEvent{}}, err
}

// request is a POST that is let in, but for what a test changes about it.
func request(t *testing.T, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(admin.UserHeader, "ada")
	return r
}

func do(t *testing.T, r *http.Request) (code int, body string) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func access() admin.Access {
	return admin.Access{Token: func() (string, error) { return token, nil }}
}

// A command reaches the controller with the name of its client.
func TestCommand(t *testing.T) {
	c := &controller{}
	url, _ := start(t, admin.Config{Control: c, Access: access()})
	for path, body := range map[string]string{
		"/control/informers/pods/pause": "", "/control/sinks/lake/resume": "{}",
		"/control/informers/pods/snapshot": `{"resource":"pods","namespace":"shop","selector":"app=web","sink":"lake"}`,
		"/control/snapshot":                `{"owner":"u1","node":"n1"}`,
		"/control/log-level":               `{"level":"debug"}`, "/control/reload": "",
	} {
		if code, answer := do(t, request(t, url+path, body)); code != 200 || answer != "{\n  \"message\": \"done\"\n}\n" {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	got := strings.Join(c.calls(), "\n")
	for _, want := range []string{
		"ada: pause informer pods", "ada: resume sink lake", "ada: snapshot pods pods shop app=web lake", "ada: snapshot      u1 n1", "ada: log-level debug", "ada: reload",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not asked for %q, but\n%s", want, got)
		}
	}
}

// A command names the refused events, and its answer names what became of them.
func TestCommandOnEvents(t *testing.T) {
	for _, what := range []string{"undelivered", "deadletters"} {
		c := &controller{}
		url, _ := start(t, admin.Config{Control: c, Access: access()})
		code, answer := do(t, request(t, url+"/control/sinks/lake/"+what, `{"ids":["a1","b2"]}`))
		want := `{"message":"done","done":["a1","b2"],"kept":[]}`
		if got := strings.Join(strings.Fields(answer), ""); code != 200 || got != want {
			t.Errorf("%d %s", code, got)
		}
		if got := strings.Join(c.calls(), "\n"); got != "ada: "+what+" lake a1+b2" {
			t.Errorf("asked for %q", got)
		}
	}
}

// A client without the right to give commands is refused.
func TestCommandRights(t *testing.T) {
	c := &controller{}
	url, _ := start(t, admin.Config{Control: c, Access: access()})
	for name, test := range map[string]struct {
		spoil func(*http.Request)
		code  int
		words string
	}{
		"without a token":          {func(r *http.Request) { r.Header.Del("Authorization") }, 401, "send the bridge's token"},
		"with a wrong token":       {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") }, 401, "not the bridge's"},
		"with an empty token":      {func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401, "send the bridge's token"},
		"with a password":          {func(r *http.Request) { r.SetBasicAuth("admin", token) }, 401, "send the bridge's token"},
		"under a foreign host":     {func(r *http.Request) { r.Host = "evil.example.com" }, 403, "ask at a loopback address"},
		"under a name like ours":   {func(r *http.Request) { r.Host = "localhost.evil.example.com:8080" }, 403, "ask at a loopback address"},
		"through a proxy":          {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "203.0.113.7") }, 403, "through a proxy"},
		"by a page":                {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example.com") }, 403, "another origin"},
		"by a page of another tab": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "another origin"},
		"by a form":                {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, url+"/control/reload", "")
			test.spoil(r)
			if code, body := do(t, r); code != test.code || !strings.Contains(body, test.words) || strings.Contains(body, token) {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	if calls := c.calls(); len(calls) > 0 {
		t.Errorf("it was asked for %v", calls)
	}
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8080", "::1"} {
		r := request(t, url+"/control/reload", "")
		r.Host = host
		if code, body := do(t, r); code != 200 {
			t.Errorf("at %s: %d %s", host, code, body)
		}
	}
}

// Without a token there are no commands.
func TestCommandWithoutToken(t *testing.T) {
	for name, of := range map[string]func() (string, error){
		"none":            nil,
		"an empty one":    func() (string, error) { return "", nil },
		"one that is not": func() (string, error) { return "", errors.New("permission denied") },
	} {
		t.Run(name, func(t *testing.T) {
			c := &controller{}
			url, _ := start(t, admin.Config{Control: c, Access: admin.Access{Token: of}})
			for _, given := range []string{token, ""} {
				r := request(t, url+"/control/reload", "")
				r.Header.Set("Authorization", "Bearer "+given)
				if code, body := do(t, r); code != 403 || len(c.calls()) > 0 {
					t.Errorf("%d %s", code, body)
				}
			}
		})
	}
}

// outsideAddress is an address of this machine that is not loopback.
func outsideAddress(t *testing.T) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	t.Skip("this machine has only loopback addresses")
	return ""
}

// An error of a command is answered with its own code and text.
func TestCommandErrors(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
	}{
		{&admin.Error{Code: 404, Err: errors.New("there is no sink lake")}, 404},
		{errors.New("disk full"), 500},
	} {
		url, _ := start(t, admin.Config{Control: &controller{err: test.err}, Access: access()})
		code, body := do(t, request(t, url+"/control/sinks/lake/pause", ""))
		if code != test.code || body != `{"error":"`+test.err.Error()+"\"}\n" {
			t.Errorf("%d %s", code, body)
		}
	}
	url, _ := start(t, admin.Config{Control: &controller{}, Access: access()})
	if code, body := do(t, request(t, url+"/control/informers/a/snapshot", `{"namspace":"shop"}`)); code != 400 || !strings.Contains(body, "namspace") {
		t.Errorf("a misspelt member: %d %s", code, body)
	}
}

// The log says who asked.
func TestLogOfCaller(t *testing.T) {
	var log bytes.Buffer
	server, err := admin.New(admin.Config{Address: "127.0.0.1:0", Control: &controller{}, Access: access(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	r := request(t, "http://"+server.Addr().String()+"/control/informers/pods/pause", "")
	r.Header.Set(admin.UserHeader, "ada@desk "+strings.Repeat("x", 200))
	do(t, r)
	cancel()
	<-done
	text := log.String()
	if !strings.Contains(text, "command=pause target=pods remote=127.0.0.1:") || !strings.Contains(text, "ada@desk xxx") || strings.Contains(text, strings.Repeat("x", 120)) {
		t.Errorf("the log:\n%s", text)
	}
	if strings.Contains(text, token) {
		t.Error("the token is in the log")
	}
}

// looked is a Inspector for tests.
type looked struct {
	batches chan any
	closed  chan struct{}
	options chan admin.TailOptions
}

func newLooked() *looked {
	return &looked{batches: make(chan any, 8), closed: make(chan struct{}, 8), options: make(chan admin.TailOptions, 8)}
}

func (l *looked) Tail(o admin.TailOptions) (admin.Tail, error) {
	if o.Filter == "bad" {
		return nil, &admin.Error{Code: http.StatusBadRequest, Err: errors.New("no such key")}
	}
	l.options <- o
	return l, nil
}

func (l *looked) Next(ctx context.Context) (any, error) {
	select {
	case b := <-l.batches:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *looked) Close() { l.closed <- struct{}{} }

func (l *looked) Object(_ context.Context, resource, namespace, name string) (any, error) {
	if name == "none" {
		return nil, errors.New("disk on fire")
	}
	return []string{resource, namespace, name}, nil
}

func (l *looked) Objects(_ context.Context, index, value string) (any, error) {
	if value == "none" {
		return nil, &admin.Error{Code: http.StatusNotFound, Err: errors.New("there is no such index")}
	}
	return []string{index, value}, nil
}

// with asks with headers; Host is one of them.
func with(t *testing.T, url string, headers map[string]string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	request.Host = headers["Host"]
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// A tail sends events until the reader closes it.
func TestTailStream(t *testing.T) {
	l := newLooked()
	url, stop := start(t, admin.Config{Look: l, Access: ownUser})
	response := with(t, url+"/tail?filter=op%3D%3D%22added%22&payload=true", nil)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("got %d %s", response.StatusCode, kind)
	}
	if o := <-l.options; o.Filter != `op=="added"` || !o.Payload {
		t.Errorf("asked for %+v", o)
	}
	lines := bufio.NewScanner(response.Body)
	for _, batch := range []string{"one\ntwo", "three"} { // the second comes without another question
		l.batches <- batch
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
		}
		if want := `data: "` + strings.ReplaceAll(batch, "\n", `\n`) + `"`; lines.Text() != want {
			t.Errorf("got %q, want %q", lines.Text(), want)
		}
	}
	response.Body.Close()
	wait(t, l.closed, "the tail is not closed when its reader has gone")

	response = with(t, url+"/tail", nil)
	<-l.options
	if err := stop(); err != nil {
		t.Error(err)
	}
	wait(t, l.closed, "the tail is not closed when the server stops")
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Errorf("the tail was broken off: %v", err)
	}
}

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal(what)
	}
}

// A request for something that can't be shown is answered plainly.
func TestInspectionErrors(t *testing.T) {
	url, _ := start(t, admin.Config{Look: newLooked(), Access: ownUser})
	for path, want := range map[string]string{
		"/tail?filter=bad":             "no such key",
		"/object?resource=pods":        "want /object?resource=",
		"/object?resource=a&name=none": "disk on fire",
		"/object?resource=pods&name=x": `"x"`,
		"/objects":                     "want /objects?index=",
		"/objects?index=a&value=none":  "there is no such index",
		"/objects?index=node&value=n1": `"n1"`,
	} {
		if _, _, body := get(t, url+path, ""); !strings.Contains(body, want) {
			t.Errorf("%s: got %q, want %q", path, body, want)
		}
	}
	without, _ := start(t, admin.Config{})
	for _, path := range []string{"/tail", "/object?resource=pods&name=x", "/objects?index=node&value=n1"} {
		if code, _, _ := get(t, without+path, ""); code != 404 {
			t.Errorf("%s without a Inspector: %d", path, code)
		}
	}
}

// Browsers get the page, and nothing from elsewhere.
func TestStatusPageFiles(t *testing.T) {
	url, _ := start(t, admin.Config{})
	page := with(t, url+"/", map[string]string{"Accept": "text/html,*/*"})
	policy := page.Header.Get("Content-Security-Policy")
	if page.StatusCode != 200 || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
		t.Errorf("got %d %s", page.StatusCode, page.Header.Get("Content-Type"))
	}
	if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("the policy lets in more than the bridge's own: %s", policy)
	}
	for path, kind := range map[string]string{"/page.css": "text/css", "/page.js": "text/javascript", "/timeline.js": "text/javascript"} {
		if code, got, body := get(t, url+path, ""); code != 200 || !strings.HasPrefix(got, kind) || len(body) < 1000 {
			t.Errorf("%s: %d %s, %d bytes", path, code, got, len(body))
		}
	}
}
