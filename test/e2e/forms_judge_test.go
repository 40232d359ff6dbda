package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// judge holds streams of several forms against the changes that a witness saw. What may not be seen
// is a * in what it expects, and in what it reads.
type judge struct {
	changes  []expected
	byID     map[string]*expected
	final    map[string]*expected // by uid, of what exists
	secret   string
	problems []string
}

// expected is a change as a bridge is to report it.
type expected struct {
	*truth.Change
	id     string
	op     string
	object map[string]any
	before *expected // of an update, the change before
}

func newJudge(changes []truth.Change, secret string) *judge {
	j := &judge{secret: secret, byID: map[string]*expected{}, final: map[string]*expected{}, changes: make([]expected, len(changes))}
	for i := range changes {
		ch := &j.changes[i]
		*ch = expected{Change: &changes[i], op: map[string]string{"ADDED": "added", "MODIFIED": "updated", "DELETED": "deleted"}[changes[i].Type]}
		uid := ch.Metadata.UID
		ch.id = uid + "/" + ch.Metadata.ResourceVersion
		ch.object = j.expected(ch.Change)
		ch.before = j.final[uid]
		if j.final[uid] = ch; ch.op == "deleted" {
			ch.id = uid + "/deleted"
			delete(j.final, uid)
		}
		j.byID[ch.id] = ch
	}
	return j
}

// expected is the object as it may leave the cluster.
func (j *judge) expected(ch *truth.Change) map[string]any {
	o := plain(ch)
	if data, ok := o["data"].(map[string]any); ok {
		for name := range data {
			if ch.Kind == "Secret" || name == "token" {
				data[name] = "*"
			}
		}
	}
	needles := needlesOf(j.secret)
	return starred(o, func(text string) bool {
		return slices.ContainsFunc(needles, func(n []byte) bool { return strings.Contains(text, string(n)) })
	}).(map[string]any)
}

// plain is the object less what is dropped.
func plain(ch *truth.Change) map[string]any {
	raw, err := ch.WithoutManagedFields()
	if err != nil {
		raw = []byte(err.Error())
	}
	o := object(raw)
	if annotations, ok := o["metadata"].(map[string]any)["annotations"].(map[string]any); ok {
		delete(annotations, "example.com/dropped")
	}
	return o
}

// got is an object of an event, with a * for what was redacted.
func got(raw []byte) map[string]any {
	return starred(object(raw), func(text string) bool { return strings.HasPrefix(text, "redacted:") }).(map[string]any)
}

// starred puts a * in the place of some texts.
func starred(value any, hide func(string) bool) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = starred(inner, hide)
		}
	case []any:
		for i, inner := range v {
			v[i] = starred(inner, hide)
		}
	case string:
		if hide(v) {
			return "*"
		}
	}
	return value
}

func (j *judge) forms() map[string]func([]read.Event) []string {
	return map[string]func([]read.Event) []string{
		"object": j.all(j.isObject), "change": j.all(j.isChange), "patch": j.patches(true), "metadata": j.all(j.isMetadata),
		"reference": j.all(isReference), "knative": j.knative, "newest": j.patches(false),
		"phases": j.some(j.changesPhase), "quiet": j.some(j.isNews),
	}
}

// ofApp reports whether a change is one of the informer app.
func ofApp(ch *expected) bool { return ch.Resource != "leases" }

// all judges a stream that has every change, with a payload that is as it should be.
func (j *judge) all(payload func(*read.Event, *expected) string) func([]read.Event) []string {
	return func(events []read.Event) []string {
		problems := j.sequence(events, ofApp)
		for i := range events {
			e := &events[i]
			ch := j.byID[e.ID()]
			if !e.AboutObject() || ch == nil {
				continue
			}
			if p := payload(e, ch); p != "" {
				problems = append(problems, fmt.Sprintf("%s %s: %s", e.Type(), e.ID(), p))
			}
			problems = append(problems, attributes(e, ch)...)
		}
		return append(problems, owners(events)...)
	}
}

// some judges a stream that has some changes.
func (j *judge) some(wanted func(*expected) bool) func([]read.Event) []string {
	return func(events []read.Event) []string { return j.sequence(events, wanted) }
}

// sequence compares the ids of each object's events with those of its changes.
func (j *judge) sequence(events []read.Event, wanted func(*expected) bool) (problems []string) {
	want, have := map[string]string{}, map[string]string{}
	for i := range j.changes {
		if ch := &j.changes[i]; wanted(ch) {
			want[ch.Collection.String()+" "+ch.Key()] += " " + ch.op + ":" + ch.id
		}
	}
	for i := range events {
		if e := &events[i]; e.AboutObject() {
			have[e.GroupResource()+" "+e.Attribute("namespace")+"/"+e.Attribute("name")] += " " + e.Op() + ":" + e.ID()
		}
	}
	for key, ids := range want {
		if have[key] != ids {
			problems = append(problems, fmt.Sprintf("%s has%s\nwant%s", key, have[key], ids))
		}
		delete(have, key)
	}
	for key, ids := range have {
		problems = append(problems, fmt.Sprintf("%s has%s\nwant none", key, ids))
	}
	return problems
}

func attributes(e *read.Event, ch *expected) (problems []string) {
	labels, _ := ch.object["metadata"].(map[string]any)["labels"].(map[string]any)
	app, _ := labels["app"].(string)
	for name, want := range map[string]string{"app": app, "uid": ch.Metadata.UID, "resourceversion": ch.Metadata.ResourceVersion, "kind": ch.Kind} {
		if have := e.Attribute(name); have != want {
			problems = append(problems, fmt.Sprintf("%s: %s is %q, want %q", e.ID(), name, have, want))
		}
	}
	return problems
}

// owners checks the chain of pods: as much of it as was known, and while the pod lived in the end
// all of it. When it is deleted, its owners may be gone before it.
func owners(events []read.Event) (problems []string) {
	last := map[string]*read.Event{}
	for i := range events {
		if e := &events[i]; e.AboutObject() && e.Attribute("resource") == "pods" && e.Op() != "deleted" {
			last[e.Attribute("name")] = e
		}
	}
	for name, e := range last {
		set := name[:strings.LastIndexByte(name, '-')]
		if e.Attribute("owners") != "ReplicaSet/"+set+",Deployment/web" || e.Attribute("ownerkind") != "Deployment" || e.Attribute("ownername") != "web" {
			problems = append(problems, fmt.Sprintf("pod %s: owners %q, %s %s", name, e.Attribute("owners"), e.Attribute("ownerkind"), e.Attribute("ownername")))
		}
	}
	return problems
}

func differ(what string, have, want any) string {
	if reflect.DeepEqual(have, want) {
		return ""
	}
	h, okHave := have.(map[string]any)
	w, okWant := want.(map[string]any)
	if !okHave || !okWant {
		return fmt.Sprintf("%s is %s, want %s", what, mustJSON(have), mustJSON(want))
	}
	for name := range h {
		if p := differ(what+"."+name, h[name], w[name]); p != "" {
			return p
		}
	}
	for name := range w {
		if _, ok := h[name]; !ok {
			return fmt.Sprintf("%s has no %s", what, name)
		}
	}
	return what + " has a member too much"
}

func (j *judge) isObject(e *read.Event, ch *expected) string {
	return differ("the object", got(e.Data()), ch.object)
}

// isChange checks the object, the one before it, and that the JSON Patch leads from one to the
// other.
func (j *judge) isChange(e *read.Event, ch *expected) string {
	var c struct{ Object, Old, Patch json.RawMessage }
	if err := json.Unmarshal(e.Data(), &c); err != nil {
		return err.Error()
	}
	if p := differ("the object", got(c.Object), ch.object); p != "" || ch.op != "updated" {
		return p
	}
	if p := differ("the old object", got(c.Old), ch.before.object); p != "" {
		return p
	}
	patch, err := jsonpatch.DecodePatch(c.Patch)
	if err != nil {
		return err.Error()
	}
	applied, err := patch.Apply(c.Old)
	if err != nil {
		return err.Error()
	}
	return differ("the patched object", object(applied), object(c.Object))
}

func (j *judge) isMetadata(e *read.Event, ch *expected) string {
	return differ("the metadata", got(e.Data()), map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": ch.object["metadata"],
	})
}

func isReference(e *read.Event, _ *expected) string {
	if len(e.Data()) > 0 {
		return fmt.Sprintf("it has data: %s", e.Data())
	}
	return ""
}

// patches judges a stream of merge patches: each, applied to what the reader has, gives what the
// object is. With history every change is there; without, versions are left out, and deletes are
// not; in the end the reader has what exists.
func (j *judge) patches(history bool) func([]read.Event) []string {
	return func(events []read.Event) (problems []string) {
		states := map[string][]byte{}
		seen := 0
		for i := range events {
			e := &events[i]
			ch, uid := j.byID[e.ID()], e.Attribute("uid")
			if !e.AboutObject() {
				continue
			}
			if seen++; ch == nil {
				problems = append(problems, e.ID()+": nobody saw such a change")
				continue
			}
			state, err := fold(e, states[uid])
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", e.ID(), err))
				continue
			}
			if p := differ("the state", got(state), ch.object); p != "" {
				problems = append(problems, e.ID()+": "+p)
			}
			if states[uid] = state; e.Op() == "deleted" {
				delete(states, uid)
			}
		}
		if history {
			return append(problems, j.sequence(events, ofApp)...)
		}
		return append(problems, j.newest(events, states, seen)...)
	}
}

// fold is the state of an object behind an event.
func fold(e *read.Event, state []byte) ([]byte, error) {
	switch {
	case e.DataContentType() != "application/merge-patch+json":
		if (state == nil) != (e.Op() == "added") && e.Op() != "deleted" {
			return nil, fmt.Errorf("%s of an object of which the reader has %q", e.Op(), state)
		}
		return e.Data(), nil
	case state == nil:
		return nil, fmt.Errorf("a patch to nothing: %s", e.Data())
	}
	return mustJSON(mergePatch(object(state), object(e.Data()))), nil
}

// mergePatch is the pseudo code of RFC 7386.
func mergePatch(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := target.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for name, value := range changes {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = mergePatch(out[name], value)
		}
	}
	return out
}

// newest judges what a stream of the newest states ends with.
func (j *judge) newest(events []read.Event, states map[string][]byte, seen int) (problems []string) {
	changes, deletes := 0, map[string]bool{}
	for i := range events {
		deletes[events[i].ID()] = events[i].Op() == "deleted"
	}
	for i := range j.changes {
		ch := &j.changes[i]
		if ofApp(ch) {
			changes++
		}
		if ch.op == "deleted" && ofApp(ch) && !deletes[ch.id] {
			problems = append(problems, ch.id+" was not reported")
		}
	}
	for uid, ch := range j.final {
		if ofApp(ch) {
			if p := differ("the last state", got(states[uid]), ch.object); p != "" {
				problems = append(problems, uid+": "+p)
			}
		}
	}
	if seen >= changes*3/4 {
		problems = append(problems, fmt.Sprintf("it has %d of %d changes: next to nothing has collapsed", seen, changes))
	}
	return problems
}

// knative judges a stream with the types and subjects of Knative's ApiServerSource.
func (j *judge) knative(events []read.Event) (problems []string) {
	count, ops := 0, map[string]string{"added": "add", "updated": "update", "deleted": "delete"}
	for i := range events {
		e := &events[i]
		if strings.HasPrefix(e.Type(), "dev.kubebridge.informer.") {
			continue
		}
		count++
		ch := j.byID[e.ID()]
		if ch == nil {
			problems = append(problems, e.ID()+": nobody saw such a change")
			continue
		}
		subject := "/apis/" + ch.Object.APIVersion + "/namespaces/" + ch.Metadata.Namespace + "/" + ch.Resource + "/" + ch.Metadata.Name
		if e.Type() != "dev.knative.apiserver.resource."+ops[ch.op] || e.Subject() != subject {
			problems = append(problems, fmt.Sprintf("%s: type %s, subject %s", e.ID(), e.Type(), e.Subject()))
		}
		if p := j.isObject(e, ch); p != "" {
			problems = append(problems, e.ID()+": "+p)
		}
	}
	for i := range j.changes {
		if ofApp(&j.changes[i]) {
			count--
		}
	}
	if count != 0 {
		problems = append(problems, fmt.Sprintf("it has %d events more than there were changes", count))
	}
	return problems
}

// changesPhase says what the filter of the sink phases says.
func (j *judge) changesPhase(ch *expected) bool {
	if ch.Resource != "pods" || ch.op == "added" {
		return false
	}
	return ch.op == "deleted" || phase(ch) != phase(ch.before)
}

func phase(ch *expected) any {
	status, _ := ch.object["status"].(map[string]any)
	return status["phase"]
}

// isNews says what the informer quiet does not ignore.
func (j *judge) isNews(ch *expected) bool {
	if ch.Resource != "leases" && ch.Resource != "configmaps" {
		return false
	}
	return ch.op != "updated" || !reflect.DeepEqual(withoutNoise(ch), withoutNoise(ch.before))
}

// withoutNoise is what counts of an object. A change of a value that nobody may see does.
func withoutNoise(ch *expected) map[string]any {
	o := plain(ch.Change)
	meta := o["metadata"].(map[string]any)
	delete(meta, "resourceVersion")
	delete(meta, "generation")
	for section, noise := range map[string]string{"data": "noise", "spec": "renewTime"} {
		if members, ok := o[section].(map[string]any); ok {
			delete(members, noise)
		}
	}
	return o
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // it was read from JSON
		panic(err)
	}
	return b
}

// hide looks for the secret in a stream.
func (j *judge) hide(sink string, events []read.Event) {
	s := &search{found: map[string]int{}, needles: needlesOf(j.secret)}
	for i := range events {
		s.in(sink, []byte(events[i].String()))
		s.in(sink, events[i].Data())
	}
	if s.found[sink] > 0 {
		j.problems = append(j.problems, fmt.Sprintf("%s: the secret is in it %d times", sink, s.found[sink]))
	}
}

// needlesOf are the ways in which a value may lie somewhere.
func needlesOf(secret string) [][]byte {
	return [][]byte{[]byte(secret), []byte(base64.StdEncoding.EncodeToString([]byte(secret)))[:len(secret)]}
}
