package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/bridge/internal/testkit"
)

// versioned are objects whose history is asked for, by the question's name of them.
var versioned = []string{"secret/db", "configmap/app", "pod/web"}

// ask asks the history of the bridge that runs over HTTP, when it has this many versions of each
// object.
func (h *hunt) ask(versions int) {
	for _, object := range versioned {
		of := "?namespace=shop&object=" + object
		h.until("the history has the versions of "+object, func() bool {
			var answer struct{ Versions []json.RawMessage }
			_ = json.Unmarshal([]byte(h.get("/history/versions"+of)), &answer)
			return len(answer.Versions) >= versions
		})
		for _, question := range []string{"/history/versions", "/history/object", "/history/diff"} {
			h.in(question, []byte(h.get(question+of)))
		}
	}
	for _, question := range []string{
		"/history/timeline", "/history/state", "/history/search", "/history/resources",
	} {
		h.in(question, []byte(h.get(question)))
	}
}

// serves lets bridge serve answer from a history, and searches what a client of Kubernetes gets: of
// a point, with the changes that led to it, and of the newest state.
func (h *hunt) serves(dir string) {
	h.served("serve", dir, "resourceVersion=1", "--at", "now", "--speed", "max")
	h.served("serve --live", dir, "", "--live")
}

// served searches its answers. watch are parameters of watches.
func (h *hunt) served(place, dir, watch string, args ...string) {
	stdout, stderr := &testkit.Buffer{}, &testkit.Buffer{}
	cmd := exec.CommandContext(h.t.Context(), h.program, append([]string{"serve", "--dir", dir}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, time.Minute
	testkit.OK(h.t, cmd.Start())
	h.until("bridge serve listens", func() bool { // either may be read here first
		return stdout.String() != "" &&
			strings.Contains(stderr.String(), "the kubeconfig is on standard output")
	})
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(stdout.String()))
	testkit.OK(h.t, err)
	client, err := rest.HTTPClientFor(config)
	testkit.OK(h.t, err)

	var mu sync.Mutex // guards what h counts
	get := func(kind, path, accept string) {
		text := h.fetch(client, config.Host+path, accept)
		mu.Lock()
		defer mu.Unlock()
		h.in(place+" "+kind, []byte(text))
	}
	var watches sync.WaitGroup
	const meta = "application/json;g=meta.k8s.io;v=v1;as="
	for resource, name := range map[string]string{"secrets": "db", "configmaps": "app", "pods": "web"} {
		list := "/api/v1/" + resource
		get("get", "/api/v1/namespaces/shop/"+resource+"/"+name, "application/json")
		get("list", list, "application/json")
		get("table", list+"?includeObject=Object", meta+"Table")
		get("metadata", list, meta+"PartialObjectMetadataList")
		watches.Go(func() { // each lasts for 2 s
			get("watch", list+"?watch=true&timeoutSeconds=2&"+watch, "application/json")
		})
	}
	watches.Wait()
	testkit.OK(h.t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		h.t.Errorf("bridge serve: %v: %s", err, lastLine(stderr.String()))
	}
	h.in("serve log", []byte(stdout.String()+stderr.String()))
}

// fetch is an answer, or as much of it as comes until the server ends it.
func (h *hunt) fetch(client *http.Client, url, accept string) string {
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		h.t.Error(err)
		return ""
	}
	request.Header.Set("Accept", accept)
	response, err := client.Do(request)
	if err != nil {
		h.t.Error(err)
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || response.StatusCode != http.StatusOK {
		h.t.Errorf("%s: %s %.200s (%v)", url, response.Status, body, err)
	}
	return string(body)
}
