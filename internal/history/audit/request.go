package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is a write that the API server has logged.
type Request struct {
	ID           string
	User         string
	Groups       []string
	Impersonator string // who acted as User; "" for none
	Verb         string
	Subresource  string
	UserAgent    string
	Received     time.Time
	Ended        time.Time

	object objectReference
	// isMaybe: the answer does not say whether anything was written.
	isMaybe bool
	// uid is that of the object that the policy has seen; "" without the policy.
	uid string
	// seen are the versions that its tries have seen, ascending; a no-op ends in "=".
	seen []claim
	// answer is the object of the answer; zero where the log has none.
	answer struct{ uid, version string }
}

type objectReference struct {
	Resource, Namespace, Name, APIGroup, Subresource, ResourceVersion string
}

// claim is what the policy notes of a try.
type claim struct {
	operation byte   // C, U or D
	version   string // or the uid, of C
	isNoop    bool
}

func (c claim) key() string { return string(c.operation) + c.version }

// errNone is for what is no write that may have succeeded.
var errNone = errors.New("no write")

// parse reads an audit event.
func parse(line []byte) (*Request, error) {
	var e struct {
		Kind, AuditID, Stage, RequestURI, Verb, UserAgent string
		User, ImpersonatedUser                            *struct {
			Username string
			Groups   []string
		}
		ObjectRef      *objectReference
		ResponseStatus *struct{ Code int }
		ResponseObject struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		RequestReceivedTimestamp, StageTimestamp time.Time
		Annotations                              map[string]string
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, err
	}
	if e.Kind != "Event" || e.Stage == "" || e.User == nil {
		return nil, errors.New("it is no event of audit.k8s.io")
	}
	code := 0
	if e.ResponseStatus != nil {
		code = e.ResponseStatus.Code
	}
	switch {
	case e.Stage != "ResponseComplete" && e.Stage != "Panic", e.ObjectRef == nil, code >= 400 && code < 500:
		return nil, errNone
	case !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb):
		return nil, errNone
	case strings.Contains(e.RequestURI, "dryRun="):
		if u, err := url.Parse(e.RequestURI); err != nil || u.Query().Get("dryRun") != "" {
			return nil, errNone
		}
	}
	r := &Request{
		ID: e.AuditID, User: e.User.Username, Groups: e.User.Groups, Verb: e.Verb, UserAgent: e.UserAgent,
		Subresource: e.ObjectRef.Subresource, Received: e.RequestReceivedTimestamp, Ended: e.StageTimestamp,
		object: *e.ObjectRef, isMaybe: code < 200 || code >= 300,
	}
	if by := e.ImpersonatedUser; by != nil {
		r.Impersonator, r.User, r.Groups = r.User, by.Username, by.Groups
	}
	r.answer.uid, r.answer.version = e.ResponseObject.Metadata.UID, e.ResponseObject.Metadata.ResourceVersion
	for key, value := range e.Annotations {
		switch key, isOurs := strings.CutPrefix(key, PolicyName+"/"); {
		case !isOurs:
		case key == "uid":
			r.uid = value
		default:
			if c, isClaim := parseClaim(value); isClaim && !slices.Contains(r.seen, c) {
				r.seen = append(r.seen, c)
			}
		}
	}
	slices.SortFunc(r.seen, compareClaims)
	return r, nil
}

func parseClaim(value string) (c claim, ok bool) {
	value, c.isNoop = strings.CutSuffix(value, "=")
	if value == "" || !strings.Contains("CUD", value[:1]) {
		return c, false
	}
	c.operation, c.version = value[0], value[1:]
	return c, c.version != ""
}

// compareClaims puts the claim of the newest version last, and so that of the last try.
func compareClaims(a, b claim) int {
	m, _ := strconv.ParseUint(a.version, 10, 64) // a uid is none
	n, _ := strconv.ParseUint(b.version, 10, 64)
	switch {
	case m < n:
		return -1
	case m > n:
		return 1
	}
	return bytes.Compare([]byte(a.key()), []byte(b.key()))
}

// Log has the requests that concern an object.
type Log struct {
	// seen are they by their claims, answered by the version of an answer about the object.
	seen, answered map[string][]*Request
	bindings       []*Request
	// Requests counts the writes that were read, and Noted those that the policy has seen. Bad
	// counts lines that are no audit events, and FirstBad names the first.
	Requests, Noted, Bad int
	FirstBad             string
	wanted               *History
}

// maxLine bounds the memory for a line. An API server bounds events only with
// --audit-log-truncate-enabled.
const maxLine = 64 << 20

// Read reads a log: a line for each event. name is for messages.
func (l *Log) Read(name string, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		request, err := parse(lines.Bytes())
		switch {
		case errors.Is(err, errNone):
		case err != nil:
			if l.Bad++; l.Bad == 1 {
				l.FirstBad = fmt.Sprintf("%s, line %d: %v", name, n, err)
			}
		default:
			if l.Requests++; len(request.seen) > 0 {
				l.Noted++
			}
			l.add(request)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (l *Log) add(r *Request) {
	h := l.wanted
	if h.uids[r.answer.uid] {
		l.answered[r.answer.version] = append(l.answered[r.answer.version], r)
	}
	if !h.isOf(r) {
		return
	}
	if r.isBinding() && r.object.Name == h.name {
		l.bindings = append(l.bindings, r)
	}
	for _, s := range r.seen {
		if key := s.key(); h.keys[key] {
			l.seen[key] = append(l.seen[key], r)
		}
	}
}
