package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

var recordRequests = flag.Bool("requests.record", false, "write testdata/requests.txt again: what clients ask of the API server")

// sentRequest is one that a client sends. Its headers are those by which an answer may differ.
type sentRequest struct {
	method, target string
	headers        [][2]string // name and value
	body           string
	client         string // the first that sent it
}

// sentHeaders are recorded.
var sentHeaders = []string{"Accept", "Accept-Encoding", "Content-Type"}

// asJSON is the request without protobuf, in which a history has no objects.
func (r *sentRequest) asJSON() *sentRequest {
	out := *r
	out.headers = nil
	for _, h := range r.headers {
		accepted := slices.DeleteFunc(strings.Split(h[1], ","), func(media string) bool {
			return strings.HasPrefix(media, "application/vnd.kubernetes.protobuf")
		})
		h[1] = strings.Join(accepted, ",")
		out.headers = append(out.headers, h)
	}
	return &out
}

func (r *sentRequest) String() string {
	text := r.method + " " + r.target
	for _, h := range r.headers {
		text += "\n  " + h[0] + ": " + h[1]
	}
	if r.body != "" {
		text += "\n  > " + r.body
	}
	return text
}

// requestLog is what clients sent, each request once.
type requestLog struct {
	mu       sync.Mutex
	client   string // guarded by mu, as requests
	requests []*sentRequest
	seen     map[string]bool
}

// hashOf is of a document of the API server that is asked.
var hashOf = regexp.MustCompile(`([?&])hash=[0-9A-F]+&?`)

func (l *requestLog) add(r *http.Request, body []byte, replace *strings.Replacer) {
	target := hashOf.ReplaceAllString(r.URL.RequestURI(), "$1")
	s := &sentRequest{method: r.Method, target: replace.Replace(target), body: replace.Replace(string(body))}
	if strings.Contains(s.target, "continue=") || !json.Valid(body) && len(body) > 0 {
		return // the pages that follow are asked for by the test; a body is of protobuf
	}
	for _, name := range sentHeaders {
		if value := r.Header.Get(name); value != "" {
			s.headers = append(s.headers, [2]string{name, value})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.client = l.client
	if !l.seen[s.String()] {
		l.seen[s.String()] = true
		l.requests = append(l.requests, s)
	}
}

func (l *requestLog) write(path string) error {
	var text strings.Builder
	text.WriteString("Requests of clients, each once. make record-requests writes this file.\n")
	client := ""
	for _, r := range l.requests {
		if r.client != client {
			client = r.client
			fmt.Fprintf(&text, "\n# %s\n", client)
		}
		fmt.Fprintln(&text, r)
	}
	return os.WriteFile(path, []byte(text.String()), 0o600)
}

// readRequests reads the file that write writes.
func readRequests(t *testing.T, path string, replace *strings.Replacer) (list []*sentRequest) {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	client := ""
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for first := true; lines.Scan(); first = false {
		line := replace.Replace(lines.Text())
		switch inner, isInner := strings.CutPrefix(line, "  "); {
		case line == "" || first:
		case strings.HasPrefix(line, "# "):
			client = line[2:]
		case isInner && strings.HasPrefix(inner, "> "):
			list[len(list)-1].body = inner[2:]
		case isInner:
			name, value, _ := strings.Cut(inner, ": ")
			r := list[len(list)-1]
			r.headers = append(r.headers, [2]string{name, value})
		default:
			method, target, _ := strings.Cut(line, " ")
			list = append(list, &sentRequest{method: method, target: target, client: client})
		}
	}
	must(t, lines.Err())
	return list
}

// recording is a proxy before the API server that logs requests.
func (p *past) recordingProxy(t *testing.T) (*requestLog, *httptest.Server) {
	t.Helper()
	log := &requestLog{seen: map[string]bool{}}
	target, err := url.Parse(p.api.Host)
	must(t, err)
	transport, err := rest.TransportFor(p.api)
	must(t, err)
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Authorization") },
		Transport: transport, FlushInterval: -1,
	}
	replace := strings.NewReplacer(p.lab.namespace, "${NS}", url.QueryEscape(p.version), "${VERSION}")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(t, err)
		r.Body = io.NopCloser(bytes.NewReader(body))
		log.add(r, body, replace)
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return log, s
}

const requestsFile = "testdata/requests.txt"

// record writes what the clients ask of the API server.
func (p *past) record(t *testing.T) {
	t.Helper()
	log, proxy := p.recordingProxy(t)
	programs := kubectls(t)
	must(t, p.writeManifest())
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		log.client = name
		for _, line := range kubectlLines {
			p.command(t, programs[name], p.Kubeconfig, line, "--server", proxy.URL)
		}
		for _, line := range readOnlyLines {
			if line[1] != "can be read, and nothing can be changed" {
				p.command(t, programs[name], p.Kubeconfig, line[0], "--server", proxy.URL)
			}
		}
	}
	kubeconfig := filepath.Join(p.dir, "recording.yaml")
	must(t, p.WriteKubeconfigThrough(kubeconfig, proxy.URL, nil, p.Token))
	for _, name := range slices.Sorted(maps.Keys(readers())) {
		log.client = name
		p.read(t, readers()[name], kubeconfig)
	}
	log.client = "client-go"
	p.goClients(t, &rest.Config{Host: proxy.URL})
	must(t, log.write(requestsFile))
}

// answersAlike sends the recorded requests to both servers.
func (p *past) answersAlike(t *testing.T) {
	t.Helper()
	requests := readRequests(t, requestsFile, strings.NewReplacer("${NS}", p.lab.namespace, "${VERSION}", p.version))
	recorded := len(requests)
	requests = append(requests, p.madeRequests()...)
	const atLeast = 300
	if recorded < atLeast {
		t.Errorf("there are %d requests, want %d", recorded, atLeast)
	}
	problems := make([][]string, len(requests))
	p.each(len(requests), func(i int) {
		r := requests[i]
		got, gotErr := ask(t, p.served, r)
		want, wantErr := ask(t, p.api, r.asJSON())
		for tries := 0; isTooLate(want) && tries < 10; tries++ {
			want, wantErr = ask(t, p.api, r.asJSON())
		}
		if err := errors.Join(gotErr, wantErr); err != nil {
			problems[i] = []string{err.Error()}
			return
		}
		p.allow(r, got, want)
		if got.code != want.code {
			problems[i] = []string{fmt.Sprintf("%d, want %d: %.300v", got.code, want.code, got.body)}
			return
		}
		for _, name := range append(readHeaders, "ETag") {
			if got.headers[name] != want.headers[name] {
				problems[i] = append(problems[i], fmt.Sprintf("%s: %q, want %q", name, got.headers[name], want.headers[name]))
			}
		}
		problems[i] = append(problems[i], differing("", got.body, want.body)...)
	})
	for i, r := range requests {
		if list := problems[i]; len(list) > 0 {
			t.Errorf("%s\n%s: %d differences, among them\n%s", r.client, r, len(list), strings.Join(list[:min(len(list), 8)], "\n"))
		}
	}
	t.Logf("%d recorded requests, %d others", recorded, len(requests)-recorded)
}

// isTooLate reports whether an API server on a busy machine had no time to begin a watch.
func isTooLate(a *answer) bool {
	if a == nil {
		return false
	}
	events, _ := a.body.([]any)
	return len(events) == 1 && strings.Contains(fmt.Sprint(events[0]), "context deadline exceeded")
}
