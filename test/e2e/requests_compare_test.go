package e2e_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// answer is what a server sent, as far as a client reads it.
type answer struct {
	code    int
	headers map[string]string
	body    any // decoded JSON, the events of a watch, else text
}

// readHeaders are those that clients read, beside ETag and Warning.
var readHeaders = []string{"Content-Type", "Content-Encoding", "Cache-Control", "Vary", "Retry-After"}

func isWatch(r *sentRequest) bool {
	return strings.Contains(r.target, "watch=true") || strings.Contains(r.target, "watch=1")
}

// ask sends a recorded request. A watch ends after a second.
func ask(t *testing.T, cfg *rest.Config, r *sentRequest) (*answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	target, err := url.Parse(strings.TrimSuffix(cfg.Host, "/") + r.target)
	if err != nil {
		return nil, err
	}
	if isWatch(r) {
		query := target.Query()
		query.Set("timeoutSeconds", "1")
		target.RawQuery = query.Encode()
	}
	asked, err := http.NewRequestWithContext(ctx, r.method, target.String(), strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	asked.Header.Set("Accept-Encoding", "identity") // else Go asks for gzip, and hides it
	for _, h := range r.headers {
		asked.Header.Set(h[0], h[1])
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(asked)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	a := &answer{code: response.StatusCode, headers: map[string]string{}}
	for _, name := range readHeaders {
		if values := response.Header.Values(name); len(values) > 0 {
			a.headers[name] = strings.Join(values, ", ")
		}
	}
	if response.Header.Get("ETag") != "" {
		a.headers["ETag"] = "one"
	}
	var body io.Reader = response.Body
	if response.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(response.Body); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	a.body, err = decodeBody(text, isWatch(r) && a.code == http.StatusOK)
	return a, err
}

// decodeBody decodes JSON, of a watch each event; anything else stays a text.
func decodeBody(text []byte, isWatch bool) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var events []any
	for {
		var value any
		err := decoder.Decode(&value)
		switch {
		case err == nil && !isWatch:
			return value, nil
		case errors.Is(err, io.EOF) && isWatch:
			return events, nil
		case err != nil && isWatch:
			return nil, err
		case err != nil:
			return string(text), nil
		}
		if event, is := value.(map[string]any); is && event["type"] == "BOOKMARK" {
			value = bookmarkOf(event)
		}
		if value != nil {
			events = append(events, value)
		}
	}
}

// bookmarkOf is what a client reads of a bookmark: that the state ends there. Others come at any
// time.
func bookmarkOf(event map[string]any) any {
	object, _ := event["object"].(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations["k8s.io/initial-events-end"] != "true" {
		return nil
	}
	return map[string]any{"type": "BOOKMARK", "kind": object["kind"], "apiVersion": object["apiVersion"]}
}

// differing compares two answers, with the place of each difference.
func differing(place string, got, want any) (list []string) {
	g, isMap := got.(map[string]any)
	w, wantsMap := want.(map[string]any)
	gl, isList := got.([]any)
	wl, wantsList := want.([]any)
	switch {
	case isMap && wantsMap:
		names := map[string]bool{}
		for name := range g {
			names[name] = true
		}
		for name := range w {
			names[name] = true
		}
		for name := range names {
			list = append(list, differing(place+"."+name, g[name], w[name])...)
		}
		slices.Sort(list)
	case isList && wantsList:
		if len(gl) != len(wl) {
			list = append(list, fmt.Sprintf("%s has %d, want %d", place, len(gl), len(wl)))
		}
		for i := range min(len(gl), len(wl)) {
			list = append(list, differing(fmt.Sprintf("%s[%d]", place, i), gl[i], wl[i])...)
		}
	case !reflect.DeepEqual(got, want):
		list = append(list, fmt.Sprintf("%s: %.200v, want %.200v", place, got, want))
	}
	return list
}

// allow takes out of two answers what docs/history.md says may differ.
func (p *past) allow(r *sentRequest, got, want *answer) {
	for _, a := range []*answer{got, want} {
		p.allowAnywhere(a.body)
	}
	path, _, _ := strings.Cut(r.target, "?")
	switch path = strings.TrimSuffix(path, "/"); {
	case strings.HasSuffix(path, "/scale") || strings.HasSuffix(path, "/log"): // not in a history
		want.code, want.body = http.StatusNotFound, nil
	case strings.HasSuffix(path, "/flowschemas"): // by their precedence, which only a table is
		sortRows(got.body)
		sortRows(want.body)
	case strings.HasSuffix(path, "/ipaddresses"): // one cell more than the table has columns
		got.body, want.body = nil, nil
	case path == "/version":
		got.body, want.body = nil, nil
	case strings.HasPrefix(path, "/openapi/v2"):
		got.body, want.body, got.headers, want.headers = nil, nil, nil, nil
	case strings.HasPrefix(path, "/apis/") && strings.Count(path, "/") == 3 && got.code == http.StatusNotFound:
		want.code, want.body = got.code, nil // nothing of that version is recorded
	case strings.HasPrefix(path, "/openapi/v3"):
		want.body = reduce(got.body, want.body)
		for _, a := range []*answer{got, want} {
			a.headers = nil
			if document, is := a.body.(map[string]any); is {
				delete(document, "info")
			}
		}
	case path == "/api" || path == "/apis" || strings.HasPrefix(path, "/apis/") && strings.Count(path, "/") < 4 || path == "/api/v1":
		want.body = reduce(got.body, want.body)
	}
	p.allowErrors(r, got, want)
}

// ownField is what some kinds say in other words of a field that they don't select by.
var ownField = regexp.MustCompile(`^field label (?:"(.*)" not supported for Job|not supported for resource.*ResourceSlice: (.*))$`)

// allowErrors takes out of two errors what clients don't read: the code and the reason must be
// equal, and the message where it is about a parameter or an object.
func (p *past) allowErrors(r *sentRequest, got, want *answer) {
	if got.code < http.StatusBadRequest {
		return
	}
	g, isStatus := got.body.(map[string]any)
	w, wantsStatus := want.body.(map[string]any)
	isNoVersion := strings.Contains(r.target, "resourceVersion=x") || strings.Contains(r.target, "resourceVersion=-1")
	if isNoVersion && want.code == http.StatusInternalServerError || strings.Contains(r.target, "%00") || strings.Contains(r.target, "%ff") {
		want.code, w = http.StatusBadRequest, nil // the API server does not look at these first
	}
	if !isStatus || !wantsStatus || w == nil || want.code == http.StatusOK || g["kind"] != w["kind"] {
		got.body, want.body, got.headers, want.headers = nil, nil, nil, nil
		return
	}
	details, _ := w["details"].(map[string]any)
	isOfPath := got.code == http.StatusNotFound && details["name"] == nil
	for _, status := range []map[string]any{g, w} {
		message, _ := status["message"].(string)
		message = ownField.ReplaceAllString(message, "field label not supported: $1$2")
		message = numbers.ReplaceAllString(message, "N") // of the newest version
		status["message"] = message
		if isOfPath || got.code == http.StatusNotAcceptable || r.method == http.MethodPost {
			delete(status, "message")
			delete(status, "details")
		}
		if of, _ := status["details"].(map[string]any); len(of) == 0 {
			delete(status, "details")
		}
	}
}

var numbers = regexp.MustCompile(`[0-9]+`)

// allowAnywhere takes out what may differ wherever it is.
func (p *past) allowAnywhere(value any) {
	switch value := value.(type) {
	case []any:
		for i, v := range value {
			if text, isText := v.(string); isText {
				value[i] = shownAges.ReplaceAllString(text, "AGE")
			}
			p.allowAnywhere(v)
		}
	case map[string]any:
		for _, name := range []string{
			"managedFields", "remainingItemCount", "continue", "storageVersionHash",
			"serverAddressByClientCIDRs", "serverRelativeURL", "deprecated.daemonset.template.generation",
		} {
			delete(value, name)
		}
		if _, isColumn := value["priority"]; isColumn {
			delete(value, "description")
		}
		if value["kind"] == "APIVersions" {
			delete(value, "apiVersion")
		}
		if kind, _ := value["kind"].(string); strings.HasSuffix(kind, "List") || kind == "Table" {
			if m, is := value["metadata"].(map[string]any); is {
				delete(m, "resourceVersion")
			}
		}
		for name, v := range value {
			p.allowAnywhere(v)
			if m, is := v.(map[string]any); is && name == "annotations" && len(m) == 0 {
				delete(value, name)
			}
		}
	}
}

func sortRows(body any) {
	table, _ := body.(map[string]any)
	rows, _ := table["rows"].([]any)
	slices.SortFunc(rows, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// reduce leaves of what is wanted what there is: members of an object, and of a list those with the
// same name.
func reduce(got, want any) any {
	switch w := want.(type) {
	case map[string]any:
		g, is := got.(map[string]any)
		if !is {
			return want
		}
		for name := range w {
			if g[name] == nil {
				delete(w, name)
				continue
			}
			w[name] = reduce(g[name], w[name])
		}
	case []any:
		g, is := got.([]any)
		if !is {
			return want
		}
		var list []any
		for _, has := range g {
			for _, wanted := range w {
				if nameOf(has) == nameOf(wanted) {
					list = append(list, reduce(has, wanted))
					break
				}
			}
		}
		return list
	}
	return want
}

// nameOf is by what an element of a list of discovery is known.
func nameOf(v any) string {
	o, is := v.(map[string]any)
	if !is {
		return fmt.Sprint(v)
	}
	metadata, _ := o["metadata"].(map[string]any)
	if metadata != nil && metadata["name"] == nil {
		return "core"
	}
	for _, name := range []any{metadata["name"], o["resource"], o["version"], o["name"], o["groupVersion"]} {
		if text, _ := name.(string); text != "" {
			return text
		}
	}
	return fmt.Sprint(o)
}
