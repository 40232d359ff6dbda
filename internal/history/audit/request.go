package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Request is a write that the API server has logged.
type Request struct {
	ID           string    `json:"id"`
	User         string    `json:"user"`
	Groups       []string  `json:"groups,omitempty"`
	Impersonator string    `json:"impersonator,omitempty"` // who acted as User; "" for none
	Verb         string    `json:"verb"`
	Subresource  string    `json:"subresource,omitempty"`
	UserAgent    string    `json:"userAgent,omitempty"`
	Received     time.Time `json:"received"`
	Ended        time.Time `json:"ended"`

	object objectReference
	// isMaybe: the answer does not say whether anything was written.
	isMaybe bool
	// hasCreated: an update or a patch has made a new object.
	hasCreated bool
	// uid is that of the object that the policy has seen at the first try; "" without the policy.
	uid string
	// seen are the versions that its tries have seen, ascending; a no-op ends in "=".
	seen []claim
	// hasForeign: others have used keys of the policy, so that a claim may be missing.
	hasForeign bool
	// hasSecond: the second policy has noted each of the tries too.
	hasSecond bool
	// answer is the object of the answer; zero where the log has none.
	answer answeredObject
}

type objectReference struct {
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"` // what the body says
	APIGroup        string `json:"apiGroup,omitempty"`
	Subresource     string `json:"subresource,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

type responseStatus struct {
	Code int `json:"code"`
}

type answeredObject struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// claim is what the policy notes of a try.
type claim struct {
	operation byte   // C, U or D
	version   string // or the uid, of C
	isNoop    bool
}

func (c claim) key() string { return string(c.operation) + c.version }

// number is what the policy divides to find the keys of the claim; of a uid it is 0.
func (c claim) number() uint64 {
	n, _ := strconv.ParseUint(c.version, 10, 64)
	if c.operation == 'C' {
		n = 0
	}
	return n
}

// String is the claim as the policy notes it.
func (c claim) String() string {
	if c.isNoop {
		return c.key() + "="
	}
	return c.key()
}

// errNone is for what is no write that may have succeeded.
var errNone = errors.New("no write")

// parse reads an audit event.
func parse(line []byte) (*Request, error) {
	type user struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	}
	var e struct {
		Kind             string            `json:"kind"`
		AuditID          string            `json:"auditID"`
		Stage            string            `json:"stage"`
		RequestURI       string            `json:"requestURI"`
		Verb             string            `json:"verb"`
		UserAgent        string            `json:"userAgent"`
		User             *user             `json:"user"`
		ImpersonatedUser *user             `json:"impersonatedUser"`
		ObjectRef        *objectReference  `json:"objectRef"`
		ResponseStatus   *responseStatus   `json:"responseStatus"`
		Received         time.Time         `json:"requestReceivedTimestamp"`
		Ended            time.Time         `json:"stageTimestamp"`
		Annotations      map[string]string `json:"annotations"`
	}
	short := shortEvents.Get().(*[]byte)
	defer shortEvents.Put(short)
	answer, err := withoutObjects(short, line)
	if err == nil {
		err = jsonv2.Unmarshal(*short, &e, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	}
	if err != nil {
		return nil, err
	}
	// One in a list names no kind.
	if e.Kind != "Event" && e.Kind != "" || e.Stage == "" || e.User == nil {
		return nil, errors.New("it is no event of audit.k8s.io")
	}
	code := 0
	if e.ResponseStatus != nil {
		code = e.ResponseStatus.Code
	}
	switch {
	case e.Stage != "ResponseComplete" && e.Stage != "Panic", e.ObjectRef == nil:
		return nil, errNone
	case !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb):
		return nil, errNone
	}
	isDryRun := isDryRun(e.RequestURI)
	if isDryRun && !strings.HasPrefix(e.Verb, "delete") {
		return nil, errNone
	}
	r := &Request{
		ID: e.AuditID, User: e.User.Username, Groups: e.User.Groups, Verb: e.Verb, UserAgent: e.UserAgent,
		Subresource: e.ObjectRef.Subresource, Received: e.Received, Ended: e.Ended,
		object: *e.ObjectRef,
		// A delete with a body is no dry run, whatever its query says.
		isMaybe: code < 200 || code >= 300 || isDryRun,
	}
	if by := e.ImpersonatedUser; by != nil {
		r.Impersonator, r.User, r.Groups = r.User, by.Username, by.Groups
	}
	r.hasCreated = code == http.StatusCreated && (e.Verb == "update" || e.Verb == "patch")
	r.answer = answer
	r.readNotes(e.Annotations)
	if code >= 400 && code < 500 && !r.mayHaveBegun(code) {
		return nil, errNone
	}
	return r, nil
}

// readNotes reads what the policies have noted.
func (r *Request) readNotes(annotations map[string]string) {
	var keys []string
	for annotation, value := range annotations {
		key, isOurs := cutPolicy(annotation)
		if !isOurs {
			continue
		}
		if key == "uid" {
			r.uid = value
			continue
		}
		keys = append(keys, key)
		switch c, isClaim := parseClaim(value); {
		case !isClaim:
			r.hasForeign = true
		case !slices.Contains(r.seen, c):
			r.seen = append(r.seen, c)
		}
	}
	slices.SortFunc(r.seen, compareClaims)
	r.hasSecond = len(r.seen) > 0
	for _, c := range r.seen {
		for _, m := range secondModuli {
			r.hasSecond = r.hasSecond && slices.Contains(keys, m.key(c.number()))
		}
	}
}

// isDryRun reads the query as the API server does.
func isDryRun(uri string) bool {
	_, query, _ := strings.Cut(uri, "?")
	values, _ := url.ParseQuery(query) // of what it can't read it takes the rest
	return slices.ContainsFunc(values["dryRun"], func(value string) bool { return value != "" })
}

// mayHaveBegun reports whether a request that was refused may have written before: an eviction
// notes a condition first, a deletecollection deletes one object after the other, a delete has two
// steps, and an answer in another form is refused when all is written.
func (r *Request) mayHaveBegun(code int) bool {
	isOfForm := code == http.StatusBadRequest || code == http.StatusNotAcceptable
	return r.isEviction() || r.isDelete() && len(r.seen) > 0 || r.Verb == "deletecollection" || isOfForm
}

// shortEvents are buffers for withoutObjects, to be used again.
var shortEvents = sync.Pool{New: func() any { return new([]byte) }}

// withoutObjects puts an event into short without the objects of its request and answer, which are
// most of it, and returns what is known of the answer.
func withoutObjects(short *[]byte, line []byte) (answer answeredObject, err error) {
	s := jsonscan.Of(line)
	out := append((*short)[:0], '{')
	for s.Open('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "requestObject":
			s.Skip()
			continue
		case "responseObject":
			answer = readAnswer(&s)
			continue
		}
		begin, value := s.KeyAt(), s.Skip()
		if s.Err() == nil {
			out = append(append(out, line[begin:value.End]...), ',')
		}
	}
	if s.Err() == nil && !s.AtEnd() {
		s.Fail(errors.New("more follows the event"))
	}
	*short = append(bytes.TrimSuffix(out, []byte(",")), '}')
	return answer, s.Err()
}

// readAnswer reads the object of an answer.
func readAnswer(s *jsonscan.Scanner) (answer answeredObject) {
	if s.Peek() != '{' {
		s.Skip()
		return answer
	}
	for s.Open('{'); s.Next('}'); {
		if string(s.Key()) != "metadata" || s.Peek() != '{' {
			s.Skip()
			continue
		}
		for s.Open('{'); s.Next('}'); {
			var into *string
			switch string(s.Key()) {
			case "uid":
				into = &answer.UID
			case "resourceVersion":
				into = &answer.ResourceVersion
			}
			if into != nil && s.Peek() == '"' {
				*into = string(s.Text(s.Quoted()))
			} else {
				s.Skip()
			}
		}
	}
	return answer
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

// storedRequest is a request as the history has it.
type storedRequest struct {
	*Request
	Object     objectReference `json:"object"`
	IsMaybe    bool            `json:"maybe,omitempty"`
	HasCreated bool            `json:"created,omitempty"`
	HasForeign bool            `json:"foreign,omitempty"`
	HasSecond  bool            `json:"second,omitempty"`
	UID        string          `json:"uid,omitempty"`
	Seen       []string        `json:"seen,omitempty"`
	Answer     answeredObject  `json:"answer,omitzero"`
}

// encode returns the request as the history has it. One that the log repeats is the same bytes.
func (r *Request) encode() ([]byte, error) {
	s := storedRequest{
		Request: r, Object: r.object, IsMaybe: r.isMaybe, HasCreated: r.hasCreated,
		HasForeign: r.hasForeign, HasSecond: r.hasSecond,
		UID: r.uid, Answer: r.answer,
	}
	for _, c := range r.seen {
		s.Seen = append(s.Seen, c.String())
	}
	return json.Marshal(&s)
}

func decode(text []byte) (*Request, error) {
	r := &Request{}
	s := storedRequest{Request: r}
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("request of the audit log: %w", err)
	}
	r.object, r.isMaybe, r.uid, r.answer = s.Object, s.IsMaybe, s.UID, s.Answer
	r.hasCreated, r.hasForeign, r.hasSecond = s.HasCreated, s.HasForeign, s.HasSecond
	for _, text := range s.Seen {
		if c, ok := parseClaim(text); ok {
			r.seen = append(r.seen, c)
		}
	}
	return r, nil
}

// claims are the keys under which a version finds the request: those of what it has seen, of the
// version that its answer has, of the pod that it has bound or evicted, of the object that it tried
// to create first or with which others go, and of the kind of which it has deleted several.
func (r *Request) claims() (claims []string) {
	for _, c := range r.seen {
		claims = append(claims, c.key())
	}
	if r.answer.UID != "" {
		claims = append(claims, answerKey(r.answer.UID, r.answer.ResourceVersion))
	}
	if r.isBinding() {
		claims = append(claims, bindingKey(r.object.Namespace, r.object.Name))
	}
	if r.isEviction() {
		claims = append(claims, evictionKey(r.object.Namespace, r.object.Name))
	}
	if r.Verb != "create" && r.triedToCreate() || r.takesAlong() {
		claims = append(claims, nameKey(r.object.Resource, r.object.Namespace, r.object.Name))
	}
	if r.Verb == "deletecollection" {
		claims = append(claims, collectionKey(r.object.Resource, r.object.Namespace))
	}
	slices.Sort(claims)
	return slices.Compact(claims)
}

// Resources with whose objects the API server deletes others itself.
const (
	services    = "services"
	definitions = "customresourcedefinitions"
)

// takesAlong reports whether other objects go with the one that a request deletes.
func (r *Request) takesAlong() bool {
	return r.Verb == "delete" && r.Subresource == "" &&
		(r.object.Resource == services || r.object.Resource == definitions)
}

func answerKey(uid, version string) string { return "A" + version + "/" + uid }

func bindingKey(namespace, pod string) string { return "B" + namespace + "/" + pod }

func evictionKey(namespace, pod string) string { return "E" + namespace + "/" + pod }

func nameKey(resource, namespace, name string) string {
	return "N" + namespace + "/" + resource + "/" + name
}

func collectionKey(resource, namespace string) string { return "L" + namespace + "/" + resource }

// Requests finds the requests that may have made a version.
type Requests interface {
	// Claiming returns those with a claim.
	Claiming(claim string) ([]*Request, error)
	// Lacks says what requests may be missing of a time; "" for none.
	Lacks(from, to time.Time) string
	// IsComplete reports whether all requests of a time are there for certain.
	IsComplete(from, to time.Time) bool
}

// Log has the requests of files that concern an object.
type Log struct {
	claiming map[string][]*Request
	// Requests counts the writes that were read, and Noted those that the policy has seen. Bad
	// counts lines that are no audit events, and FirstBad names the first.
	Requests, Noted, Bad int
	FirstBad             string
	known                map[string]bool // requests that are kept, as they are encoded: a log may repeat them
	wanted               map[string]bool // claims
	isComplete           bool
}

// NewLog returns a log that keeps the requests with claims. isComplete says that it will have every
// request.
func NewLog(wanted map[string]bool, isComplete bool) *Log {
	return &Log{claiming: map[string][]*Request{}, known: map[string]bool{}, wanted: wanted, isComplete: isComplete}
}

// Claiming returns the requests with a claim.
func (l *Log) Claiming(claim string) ([]*Request, error) { return l.claiming[claim], nil }

// Lacks says nothing: of which time the files are is not known.
func (l *Log) Lacks(time.Time, time.Time) string { return "" }

// IsComplete reports whether whoever gave the files said so, and each line was read.
func (l *Log) IsComplete(time.Time, time.Time) bool { return l.isComplete && l.Bad == 0 }

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
			if err := l.keep(request); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// keep keeps a request that has one of the wanted claims.
func (l *Log) keep(r *Request) error {
	claims := slices.DeleteFunc(r.claims(), func(claim string) bool { return !l.wanted[claim] })
	if len(claims) == 0 {
		return nil
	}
	text, err := r.encode()
	if err != nil || l.known[string(text)] {
		return err
	}
	l.known[string(text)] = true
	for _, claim := range claims {
		l.claiming[claim] = append(l.claiming[claim], r)
	}
	return nil
}
