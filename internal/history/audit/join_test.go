package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/testkit"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// version is one of an object; a minute lies between two of them.
type version struct {
	op       event.Op
	number   int
	minute   int
	metadata string // beside its name
	spec     string
	change   func(*event.Event)
}

// historyOf is of the pod shop/web.
func historyOf(versions ...version) *History { return historyIn("pods", "", "shop", versions...) }

func historyIn(resource, group, namespace string, versions ...version) *History {
	unit := &record.Unit{Resource: resource, Group: group, Source: "/clusters/prod"}
	h := NewHistory(&query.Object{Unit: unit, Namespace: namespace, Name: "web"})
	var before *query.Version
	for _, of := range versions {
		at := noon.Add(time.Duration(of.minute) * time.Minute)
		v := &query.Version{Unit: unit, Time: at, Event: event.Event{
			Op: of.op, Time: at,
			ObjectAttributes: event.ObjectAttributes{UID: "u1", ResourceVersion: fmt.Sprint(of.number)},
			OriginAttributes: event.OriginAttributes{TimeSource: event.TimeObserved},
			Data:             fmt.Appendf(nil, `{"metadata":{"name":"web"%s},"spec":{%s}}`, of.metadata, of.spec),
		}}
		if of.change != nil {
			of.change(&v.Event)
		}
		h.Add(v, before)
		before = v
	}
	return h
}

// line is an audit event of a request for shop/web in a minute. Notes are "uid:u1" and claims; "2:"
// begins those of the second policy.
func line(user, verb string, minute, code int, notes string, more ...string) string {
	annotations := map[string]string{"authorization.k8s.io/decision": "allow"}
	for i, note := range strings.Fields(notes) {
		if note, isSecond := strings.CutPrefix(note, "2:"); isSecond {
			c, _ := parseClaim(note)
			for _, m := range secondModuli {
				annotations[secondName+"/"+m.key(c.number())] = note
			}
			continue
		}
		key := fmt.Sprint(PolicyName, "/a", i)
		if uid, isUID := strings.CutPrefix(note, "uid:"); isUID {
			key, note = PolicyName+"/uid", uid
		}
		annotations[key] = note
	}
	at := noon.Add(time.Duration(minute) * time.Minute)
	e := map[string]any{
		"kind": "Event", "auditID": user + "'s", "stage": "ResponseComplete", "verb": verb, "requestURI": "/api/v1/namespaces/shop/pods/web",
		"user":           map[string]any{"username": user},
		"objectRef":      map[string]any{"resource": "pods", "namespace": "shop", "name": "web"},
		"responseStatus": map[string]any{"code": code}, "annotations": annotations,
		"requestReceivedTimestamp": at.Add(-time.Second).Format(time.RFC3339Nano), "stageTimestamp": at.Format(time.RFC3339Nano),
	}
	for _, text := range more { // path=JSON
		path, value, _ := strings.Cut(text, "=")
		into := e
		for parent, rest, isDeep := strings.Cut(path, "."); isDeep; parent, rest, isDeep = strings.Cut(path, ".") {
			if into[parent] == nil {
				into[parent] = map[string]any{}
			}
			into, path = into[parent].(map[string]any), rest
		}
		into[path] = json.RawMessage(value)
	}
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func answersOf(t *testing.T, h *History, l Requests) []Answer {
	t.Helper()
	answers, err := h.Answers(l)
	testkit.OK(t, err)
	return answers
}

func answered(version string) string {
	return `responseObject={"metadata":{"uid":"u1","resourceVersion":"` + version + `"}}`
}

// answerCase has the versions of an object, and the writes in the log.
type answerCase struct {
	history *History
	log     []string
	asked   int // 1 for the first version; 0 for the last one
	want    string
}

func (c *answerCase) check(t *testing.T) {
	h := c.history
	l := h.Log(true)
	testkit.OK(t, l.Read("audit.log", strings.NewReader(strings.Join(c.log, "\n"))))
	asked := c.asked
	if asked == 0 {
		asked = len(h.changes)
	}
	a := answersOf(t, h, l)[asked-1]
	if got := describe(&a); got != c.want {
		t.Errorf("%s, want %s", got, c.want)
	}
	if again := answersOf(t, h, decodedLog{l})[asked-1]; describe(&again) != c.want {
		t.Errorf("of a record: %s, want %s", describe(&again), c.want)
	}
	if a.Grade == CompleteLog {
		l.isComplete = false
		if a := answersOf(t, h, l)[asked-1]; a.Request != nil || a.Reason != reasonIncomplete {
			t.Errorf("of a log that may lack requests: %+v", a)
		}
	}
}

func describe(a *Answer) string {
	switch {
	case a.Request == nil:
		return a.Reason
	case a.Impersonator != "":
		return a.User + " by " + a.Impersonator + " " + string(a.Grade)
	}
	return a.User + " " + string(a.Grade)
}

// decodedLog decodes its requests each time, as Recorded does.
type decodedLog struct{ *Log }

func (l decodedLog) Claiming(claim string) (found []*Request, err error) {
	for _, r := range l.claiming[claim] {
		text, err := r.encode()
		if err == nil {
			r, err = decode(text)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, nil
}

// Of a deletion that another request may have made which has not ended yet, nothing is known.
func TestRequestThatHasNotEnded(t *testing.T) {
	h := historyOf(version{op: event.Added, number: 10}, version{op: event.Deleted, number: 30, minute: 1})
	l := h.Log(true)
	testkit.OK(t, l.Read("audit.log", strings.NewReader(line("bob", "deletecollection", 1, 200, "uid:u1 D10"))))
	for end, want := range map[time.Duration]string{time.Minute + 10*time.Second: lacksYet, 3 * time.Minute: "bob complete-log"} {
		source := &state{Since: noon.Add(-time.Hour), Until: noon.Add(end), Complete: true}
		a := answersOf(t, h, logUntil{l, &Recorded{sources: map[string]*state{"a": source}}})[1]
		if got := describe(&a); got != want {
			t.Errorf("after %v: %s, want %s", end, got, want)
		}
	}
}

// logUntil is a log that is read up to a time.
type logUntil struct {
	*Log
	read *Recorded
}

func (l logUntil) Lacks(from, to time.Time) string    { return l.read.Lacks(from, to) }
func (l logUntil) IsComplete(from, to time.Time) bool { return l.read.IsComplete(from, to) }

// Each case has the versions of a pod, and the writes in the log. Who made the last version is
// asked, unless the case names another one.
func TestAnswers(t *testing.T) {
	added := version{op: event.Added, number: 10}
	updated := version{op: event.Updated, number: 20, minute: 1, spec: `"a":1`}
	unchanged := version{op: event.Updated, number: 20, minute: 1}
	later := version{op: event.Updated, number: 30, minute: 1, spec: `"a":2`}
	terminating := version{op: event.Updated, number: 20, minute: 1, metadata: `,"deletionTimestamp":"2026-11-29T12:01:00Z"`}
	held := version{
		op: event.Updated, number: 20, minute: 1,
		metadata: `,"deletionTimestamp":"2026-11-29T12:01:00Z","finalizers":["a"]`,
	}
	deleted := version{op: event.Deleted, number: 30, minute: 2}
	list := version{op: event.Updated, number: 20, minute: 1, change: func(e *event.Event) { e.Inferred = true }}
	entered, mayHaveEntered := because(added, event.CauseEntered), because(added, event.CauseUnknown)
	left, mayHaveLeft := because(deleted, event.CauseLeft), because(deleted, event.CauseUnknown)
	created := line("ann", "create", 0, 201, "uid:u1 Cu1")
	afterCreation := line("bob", "patch", 0, 200, "uid:u1 U9", answered("10"))
	for name, c := range map[string]answerCase{
		"create":                    {historyOf(added), []string{line("ann", "create", 0, 201, "uid:u1 Cu1")}, 0, "ann exact"},
		"create, selected here":     {historyOf(because(added, event.CauseCreated)), []string{created}, 0, "ann exact"},
		"entered":                   {historyOf(entered), []string{created}, 0, reasonEntered},
		"may have entered":          {historyOf(mayHaveEntered), []string{created}, 0, reasonEntered},
		"entered, answered":         {historyOf(mayHaveEntered), []string{created, afterCreation}, 0, "bob exact"},
		"created, answered":         {historyOf(mayHaveEntered), []string{line("ann", "create", 0, 201, "uid:u1 Cu1", answered("10"))}, 0, "ann exact"},
		"left":                      {historyOf(added, updated, left), []string{line("bob", "patch", 2, 200, "uid:u1 U20"), line("ann", "delete", 2, 200, "uid:u1 D20 D30")}, 0, "bob complete-log"},
		"left, answered":            {historyOf(added, updated, left), []string{line("bob", "patch", 2, 200, "uid:u1 U20", answered("30"))}, 0, "bob exact"},
		"left or deleted":           {historyOf(added, updated, mayHaveLeft), []string{line("bob", "patch", 2, 200, "uid:u1 U20"), line("ann", "delete", 2, 200, "uid:u1 D20 D30")}, 0, reasonSeveral},
		"deleted, perhaps left":     {historyOf(added, updated, mayHaveLeft), []string{line("ann", "delete", 2, 200, "uid:u1 D20")}, 0, "ann exact"},
		"create of another":         {historyOf(added), []string{line("ann", "create", 0, 201, "uid:u2 Cu2")}, 0, reasonNone},
		"create that exists":        {historyOf(added), []string{line("ann", "create", 0, 409, "uid:u1 Cu1")}, 0, reasonNone},
		"update":                    {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10")}, 0, "ann exact"},
		"update of the status":      {historyOf(added, updated), []string{line("ann", "update", 1, 200, "uid:u1 U10", `objectRef.subresource="status"`)}, 0, "ann exact"},
		"no request":                {historyOf(added, updated), nil, 0, reasonNone},
		"a dry run":                 {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10", `requestURI="/x?dryRun=All"`)}, 0, reasonNone},
		"a conflict":                {historyOf(added, updated), []string{line("ann", "update", 1, 409, "uid:u1 U10")}, 0, reasonNone},
		"no-op and write":           {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10="), line("bob", "patch", 1, 200, "uid:u1 U10")}, 0, "bob exact"},
		"an error of the server":    {historyOf(added, updated), []string{line("ann", "patch", 1, 500, "uid:u1 U10")}, 0, reasonFailed},
		"two claims":                {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10"), line("bob", "patch", 1, 200, "uid:u1 U10")}, 0, reasonSeveral},
		"a line twice":              {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10"), line("ann", "patch", 1, 200, "uid:u1 U10")}, 0, "ann exact"},
		"two claims, with answers":  {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10", answered("20")), line("bob", "patch", 1, 200, "uid:u1 U10", answered("30"))}, 0, "ann exact"},
		"one that wrote another":    {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10", answered("40"))}, 0, reasonNone},
		"an answer without a claim": {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "", answered("20"))}, 0, reasonNone},
		"a no-op after it":          {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U20=", answered("20")), line("bob", "patch", 1, 200, "uid:u1 U10", answered("20"))}, 0, "bob exact"},
		"the last try counts":       {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U9 U10"), line("bob", "patch", 1, 200, "uid:u1 U10 U15")}, 0, "ann exact"},
		"three tries":               {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U8 U9 U10")}, 0, "ann exact"},
		"create, then update":       {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u9 Cu9 U10")}, 0, "ann exact"},
		"a scale that changes who":  {historyOf(added, unchanged), []string{line("ann", "update", 1, 200, "uid:u1 U10=", `objectRef.subresource="scale"`)}, 0, "ann complete-log"},
		"a scale of no change":      {historyOf(added, updated), []string{line("ann", "update", 1, 200, "uid:u1 U10=", `objectRef.subresource="scale"`)}, 0, reasonNone},
		"a patch that has created":  {historyOf(added, updated), []string{line("ann", "patch", 1, 201, "uid:u0 Cu0 U10"), line("bob", "patch", 1, 200, "uid:u1 U10")}, 0, "bob exact"},
		"not of a later version":    {historyOf(added, updated, later), []string{line("ann", "patch", 1, 200, "uid:u1 U10")}, 2, "ann exact"},
		"with a version it can't":   {historyOf(added, updated, later), []string{line("ann", "update", 1, 200, "uid:u1 U10", `objectRef.resourceVersion="10"`)}, 2, "ann exact"},
		"with answers neither":      {historyOf(added, updated, later), []string{line("ann", "patch", 1, 200, "uid:u1 U10", answered("20"))}, 2, "ann exact"},
		"nor when it had ended":     {historyOf(added, updated, version{op: event.Updated, number: 30, minute: 9}), []string{line("ann", "patch", 1, 200, "uid:u1 U10")}, 2, "ann exact"},
		"delete":                    {historyOf(added, updated, deleted), []string{line("ann", "delete", 2, 200, "uid:u1 D20")}, 0, "ann exact"},
		"delete with a grace":       {historyOf(added, terminating), []string{line("ann", "delete", 1, 200, "uid:u1 D10", answered("20"))}, 0, "ann exact"},
		"a delete of no change":     {historyOf(added, updated), []string{line("ann", "delete", 1, 200, "uid:u1 D10")}, 0, reasonNone},
		"delete of what ends":       {historyOf(added, terminating, deleted), []string{line("kubelet", "delete", 2, 200, "uid:u1 D20")}, 0, "kubelet complete-log"},
		"the last finalizer":        {historyOf(added, terminating, deleted), []string{line("ann", "patch", 2, 200, "uid:u1 U20", answered("20"))}, 0, "ann complete-log"},
		"a delete before it":        {historyOf(added, held, deleted), []string{line("ann", "patch", 2, 200, "uid:u1 U20", answered("20")), line("bob", "delete", 2, 200, "uid:u1 D20")}, 0, "ann complete-log"},
		"a delete tried before it":  {historyOf(added, held, deleted), []string{line("ann", "patch", 2, 200, "uid:u1 U20", answered("20")), line("bob", "delete", 2, 200, "uid:u1 D10 D20")}, 0, reasonSeveral},
		"a hidden try before it": {
			historyOf(version{op: event.Added, number: 8, minute: 2}, version{op: event.Updated, number: 13, minute: 2}, held, deleted),
			[]string{line("ann", "patch", 2, 200, "uid:u1 U20", answered("20")), line("bob", "delete", 2, 200, "uid:u1 D8 D13")},
			0, reasonSeveral,
		},
		"no hidden try before it": {
			historyOf(version{op: event.Added, number: 8, minute: 2}, version{op: event.Updated, number: 14, minute: 2}, held, deleted),
			[]string{line("ann", "patch", 2, 200, "uid:u1 U20", answered("20")), line("bob", "delete", 2, 200, "uid:u1 D8 D14")},
			0, "ann complete-log",
		},
		"a hidden try that is answered": {
			historyOf(
				version{op: event.Added, number: 8, minute: 1},
				version{op: event.Updated, number: 13, minute: 1},
				held,
				version{
					op: event.Updated, number: 97, minute: 1,
					metadata: `,"deletionTimestamp":"2026-11-29T12:01:00Z","finalizers":["b"]`,
				},
			),
			[]string{
				line("ann", "patch", 1, 200, "uid:u1 U8 U13", answered("97")),
				line("bob", "delete", 1, 200, "uid:u1 D20"),
			},
			0, reasonSeveral,
		},
		"an answer that it may have seen": {
			historyOf(added, updated, later),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U9 U18", answered("30"))},
			0, reasonNone,
		},
		"an answer that it may have made": {
			historyOf(added, updated, later),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U9 U18 U20", answered("30"))},
			0, "ann complete-log",
		},
		"deletecollection":          {historyOf(added, updated, deleted), []string{line("ann", "deletecollection", 2, 200, "uid:u7 D5 D20")}, 0, "ann complete-log"},
		"a binding":                 {historyOf(added, version{op: event.Updated, number: 20, minute: 1, spec: `"nodeName":"n1"`}), []string{line("scheduler", "create", 1, 201, "", `objectRef.subresource="binding"`, `objectRef.uid="u1"`)}, 0, "scheduler exact"},
		"a binding without a uid":   {historyOf(added, version{op: event.Updated, number: 20, minute: 1, spec: `"nodeName":"n1"`}), []string{line("scheduler", "create", 1, 201, "", `objectRef.subresource="binding"`)}, 0, "scheduler complete-log"},
		"a binding of another time": {historyOf(added, version{op: event.Updated, number: 20, minute: 1, spec: `"nodeName":"n1"`}), []string{line("scheduler", "create", 7, 201, "", `objectRef.subresource="binding"`)}, 0, reasonNone},
		"a list":                    {historyOf(added, list), []string{line("ann", "patch", 1, 200, "uid:u1 U10")}, 0, reasonList},
		"a hole before it":          {historyOf(updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10")}, 0, reasonUnknown},
		"notes of another policy":   {historyOf(added, updated), []string{strings.ReplaceAll(line("eve", "patch", 1, 200, "uid:u1 U10"), PolicyName, "attribution.example.com")}, 0, reasonNone},
		"impersonation":             {historyOf(added, updated), []string{line("ann", "patch", 1, 200, "uid:u1 U10", `impersonatedUser={"username":"bob"}`)}, 0, "bob by ann exact"},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

// A request between the last known moment before a restore and the restore is of its own time.
func TestBeforeRewind(t *testing.T) {
	h := historyOf(version{op: event.Added, number: 10}, version{op: event.Updated, number: 20, minute: 1, spec: `"a":1`},
		version{op: event.Updated, number: 10, minute: 5, change: func(e *event.Event) { e.Inferred = true }})
	h.AddRewind(noon.Add(61*time.Second), noon.Add(5*time.Minute))
	for _, minute := range []int{2, 4} {
		l := h.Log(true)
		testkit.OK(t, l.Read("audit.log", strings.NewReader(line("bob", "patch", minute, 200, "uid:u1 U10", answered("20")))))
		if a := answersOf(t, h, l)[1]; a.Request != nil {
			t.Errorf("%+v", a)
		}
	}
}

// A pod that is bound again behind a restore is bound by another request.
func TestReboundBehindRewind(t *testing.T) {
	const bound = `"nodeName":"n1"`
	h := historyOf(version{op: event.Added, number: 10}, version{op: event.Updated, number: 20, minute: 1, spec: bound},
		version{op: event.Updated, number: 10, minute: 2, change: func(e *event.Event) { e.Inferred = true }},
		version{op: event.Updated, number: 20, minute: 2, spec: bound})
	h.AddRewind(noon.Add(115*time.Second), noon.Add(2*time.Minute))
	l := h.Log(true)
	const at = "2026-11-29T12:01:50Z"
	testkit.OK(t, l.Read("audit.log", strings.NewReader(line("scheduler", "create", 1, 201, "", `objectRef.subresource="binding"`,
		`objectRef.uid="u1"`, `requestReceivedTimestamp="`+at+`"`, `stageTimestamp="`+at+`"`))))
	if a := answersOf(t, h, l)[3]; a.Request != nil {
		t.Errorf("%+v", a)
	}
}

// Behind a restore of etcd versions come again, and are those of other requests.
func TestRewind(t *testing.T) {
	h := historyOf(version{op: event.Added, number: 10}, version{op: event.Updated, number: 20, minute: 1, spec: `"a":1`},
		version{op: event.Updated, number: 10, minute: 5, change: func(e *event.Event) { e.Inferred = true }},
		version{op: event.Updated, number: 20, minute: 9, spec: `"a":2`})
	h.AddRewind(noon.Add(4*time.Minute), noon.Add(5*time.Minute))
	l := h.Log(true)
	testkit.OK(t, l.Read("audit.log", strings.NewReader(line("ann", "patch", 1, 200, "uid:u1 U10")+"\n"+line("bob", "patch", 9, 200, "uid:u1 U10"))))
	answers := answersOf(t, h, l)
	if a, b := answers[1], answers[3]; a.Request == nil || b.Request == nil || a.User != "ann" || b.User != "bob" {
		t.Errorf("%+v", answers)
	}
}

// A gap leaves nothing known of what it lies before, and of nothing else.
func TestGap(t *testing.T) {
	h := historyOf(version{op: event.Added, number: 10}, version{op: event.Updated, number: 20, minute: 1, spec: `"a":1`},
		version{op: event.Updated, number: 30, minute: 2, spec: `"a":2`}, version{op: event.Deleted, number: 40, minute: 3},
		version{op: event.Added, number: 50, minute: 4, change: func(e *event.Event) { e.UID = "u2" }})
	h.AddGap("22", "28")
	l := h.Log(true)
	for i, note := range []string{"uid:u1 Cu1", "uid:u1 U10", "uid:u1 U20", "uid:u1 D30", "uid:u2 Cu2"} {
		verb := []string{"create", "patch", "patch", "delete", "create"}[i]
		testkit.OK(t, l.Read("audit.log", strings.NewReader(line("ann", verb, i, 200, note))))
	}
	for i, a := range answersOf(t, h, l) {
		if want := i != 2; (a.Request != nil) != want || !want && a.Reason != reasonGap {
			t.Errorf("change %d: %+v", i, a)
		}
	}
}

// What is no audit event is counted, and what the others say is known.
func TestBadLines(t *testing.T) {
	h := historyOf(version{op: event.Added, number: 10})
	l := h.Log(true)
	testkit.OK(t, l.Read("audit.log", strings.NewReader("\n{\"kind\":\"Event\nhello\n"+line("ann", "create", 0, 201, "uid:u1 Cu1")+"\n{}")))
	if l.Bad != 3 || l.Requests != 1 || !strings.HasPrefix(l.FirstBad, "audit.log, line 2: ") {
		t.Errorf("%+v", l)
	}
	if a := answersOf(t, h, l)[0]; a.Request == nil {
		t.Error(a.Reason)
	}
}

// What carries tokens or values of Secrets is logged without its body.
func TestPolicySecrets(t *testing.T) {
	var policy struct {
		Rules []struct {
			Level     string
			Verbs     []string
			Resources []struct {
				Group     string
				Resources []string
			}
		}
	}
	testkit.OK(t, yaml.Unmarshal([]byte(LogPolicy(RequestResponse)), &policy))
	levelOf := func(group, resource string) string {
		for _, rule := range policy.Rules {
			isOf := len(rule.Resources) == 0
			for _, r := range rule.Resources {
				isOf = isOf || r.Group == group && (len(r.Resources) == 0 || slices.Contains(r.Resources, resource))
			}
			if isOf && len(rule.Verbs) == 0 {
				return rule.Level
			}
		}
		return ""
	}
	for _, secret := range []string{"/secrets", "/serviceaccounts/token", "authentication.k8s.io/tokenreviews"} {
		group, resource, _ := strings.Cut(secret, "/")
		if level := levelOf(group, resource); level != "Metadata" {
			t.Errorf("%s is logged with %s", secret, level)
		}
	}
	if level := levelOf("apps", "deployments"); level != "RequestResponse" {
		t.Errorf("deployments are logged with %s", level)
	}
}

// The policies are YAML, and the admission policy has no more annotations than it may.
func TestPolicies(t *testing.T) {
	const mostAnnotations = 20
	for _, text := range []string{Policy(), LogPolicy(Metadata), LogPolicy(RequestResponse)} {
		for document := range strings.SplitSeq(text, "\n---\n") {
			var o struct {
				Kind string
				Spec struct{ AuditAnnotations []struct{ Key string } }
			}
			testkit.OK(t, yaml.UnmarshalStrict([]byte(document), &map[string]any{}))
			testkit.OK(t, yaml.Unmarshal([]byte(document), &o))
			if n := len(o.Spec.AuditAnnotations); o.Kind == "" || n > mostAnnotations || o.Kind == "ValidatingAdmissionPolicy" && n != mostAnnotations {
				t.Errorf("%s: %d annotations", o.Kind, n)
			}
		}
	}
}

// A log is foreign bytes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(line("ann", "patch", 1, 200, "uid:u1 U9 U10=", answered("20"))))
	f.Add([]byte(line("ann", "deletecollection", 1, 200, "uid:u7 D5 D20 U")))
	h := historyOf(version{op: event.Added, number: 10}, version{op: event.Updated, number: 20, minute: 1})
	f.Fuzz(func(t *testing.T, text []byte) {
		l := h.Log(true)
		_ = l.Read("audit.log", strings.NewReader(string(text)))
		for _, a := range answersOf(t, h, l) {
			if (a.Request == nil) == (a.Reason == "") {
				t.Errorf("%+v", a)
			}
		}
	})
}

// Events are in two groups: who writes one in the other group is found.
func TestGroupsOfEvents(t *testing.T) {
	for _, c := range []struct {
		resource, of, inLog string
		want                bool
	}{
		{"events", "", "events.k8s.io", true},
		{"events", "events.k8s.io", "", true},
		{"events", "", "example.com", false},
		{"pods", "", "events.k8s.io", false},
	} {
		h := NewHistory(&query.Object{Unit: &record.Unit{Resource: c.resource, Group: c.of}, Namespace: "shop", Name: "web"})
		r, err := parse([]byte(line("ann", "create", 1, 201, "uid:u1 Cu1", `objectRef.resource="`+c.resource+`"`, `objectRef.apiGroup="`+c.inLog+`"`)))
		testkit.OK(t, err)
		if got := h.isOf(r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
