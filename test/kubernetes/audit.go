package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// auditPolicy has the API server write one line for each request: for a watch when it starts,
// because the other line comes when it ends, and for everything else when it is answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  verbs: ["watch"]
  omitStages: ["RequestReceived", "ResponseComplete"]
- level: Metadata
  omitStages: ["RequestReceived", "ResponseStarted"]
`

// auditEvent is what we read of a line of the audit log.
type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

// request is one request as the control API gives it.
type request struct {
	Time      time.Time `json:"time"`
	Verb      string    `json:"verb"`
	URI       string    `json:"uri"`
	Code      int       `json:"code"`
	UserAgent string    `json:"userAgent"`
	User      string    `json:"user"`
	Group     string    `json:"group,omitempty"`
	Resource  string    `json:"resource,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
}

// requestFilter chooses requests; its zero value chooses all.
type requestFilter struct {
	from      int64  // offset in the audit log
	verb      string // equal
	user      string // equal
	group     string // equal
	resource  string // equal, "pods/status" for a subresource
	namespace string // equal
	code      int    // equal
	userAgent string // part of
	uri       string // part of
}

func requestFilterOf(q url.Values) (requestFilter, error) {
	f := requestFilter{
		verb: q.Get("verb"), user: q.Get("user"), group: q.Get("group"), resource: q.Get("resource"),
		namespace: q.Get("namespace"), userAgent: q.Get("userAgent"), uri: q.Get("uri"),
	}
	known := map[string]bool{"verb": true, "user": true, "group": true, "resource": true, "namespace": true, "userAgent": true, "uri": true, "from": true, "code": true}
	var errs []error
	for name := range q {
		if !known[name] { // a misspelled filter would count everything
			errs = append(errs, fmt.Errorf("unknown parameter %q", name))
		}
	}
	var err error
	if v := q.Get("from"); v != "" {
		f.from, err = strconv.ParseInt(v, 10, 64)
		errs = append(errs, err)
	}
	if v := q.Get("code"); v != "" {
		f.code, err = strconv.Atoi(v)
		errs = append(errs, err)
	}
	return f, errors.Join(errs...)
}

func (f *requestFilter) matches(r *request) bool {
	equal := func(want, have string) bool { return want == "" || want == have }
	return equal(f.verb, r.Verb) && equal(f.user, r.User) && equal(f.group, r.Group) && equal(f.resource, r.Resource) &&
		equal(f.namespace, r.Namespace) && (f.code == 0 || f.code == r.Code) &&
		strings.Contains(r.UserAgent, f.userAgent) && strings.Contains(r.URI, f.uri)
}

// requestsResult is the answer to GET /requests.
type requestsResult struct {
	Count    int       `json:"count"`
	Requests []request `json:"requests"`
	// End is where the audit log ended: from=END counts only what comes later.
	End int64 `json:"end"`
}

// countRequests reads the audit log. A line is written before the last byte of an answer, and for a
// watch before its first, so what a client has got its answer to is counted.
func countRequests(path string, f requestFilter) (requestsResult, error) {
	result := requestsResult{Requests: []request{}, End: f.from}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return result, nil // no request yet
	} else if err != nil {
		return result, err
	}
	defer file.Close()
	if _, err := file.Seek(f.from, io.SeekStart); err != nil {
		return result, err
	}
	lines := bufio.NewReaderSize(file, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // a line without its end is still being written: the next count has it
		} else if err != nil {
			return result, err
		}
		result.End += int64(len(line))
		r, err := parseAuditLine(line)
		if err != nil {
			return result, fmt.Errorf("%s before byte %d: %w", path, result.End, err)
		}
		if f.matches(&r) {
			result.Requests = append(result.Requests, r)
		}
	}
	result.Count = len(result.Requests)
	return result, nil
}

func parseAuditLine(line []byte) (request, error) {
	var e auditEvent
	if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
		return request{}, err
	}
	r := request{
		Time: e.Received, Verb: e.Verb, URI: e.RequestURI, Code: e.ResponseStatus.Code, UserAgent: e.UserAgent, User: e.User.Username,
		Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
	}
	if e.ObjectRef.Subresource != "" {
		r.Resource += "/" + e.ObjectRef.Subresource
	}
	return r, nil
}
