package ask

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// Initiators finds the change of an owner that a controller has carried out with another change:
//
//	Deployment: alice sets an image → ReplicaSet: created → Pods: created
//
// It names a change where no other one can be the reason, and else none:
//
//   - The Deployment controller creates a ReplicaSet with a template. One change of the Deployment
//     has set that template.
//   - The controller scales a ReplicaSet, and notes how many the Deployment wants (the annotation
//     desired-replicas). One change of the Deployment has set that number.
//   - The ReplicaSet controller creates the Pod of number n because the ReplicaSet wants n. No Pod
//     has ended before, so this one replaces none.
//
// A change of a Deployment must be the only one that the controller did not know: the version
// before it has the observedGeneration of its own spec, and no other change lies before that of the
// controller. A generation counts the changes, so one that is missing in the history is noticed.
//
// It is not for concurrent use.
type Initiators struct {
	history *query.Questions
	actors  *Actors
	owners  *owners
	steps   map[ownerKey][]step
}

// NewInitiators returns initiators of the history of some actors.
func NewInitiators(actors *Actors) *Initiators {
	return &Initiators{actors.history, actors, newOwners(actors.history, new(ownerCache)), map[ownerKey][]step{}}
}

// Derived is the grade of an initiator.
const Derived = "derived"

// isController reports whether a user is one of the controllers whose changes have an initiator: by
// an account of its own, or by that of all.
func isController(a *query.ActorReport) bool {
	switch a.User {
	case "system:serviceaccount:kube-system:deployment-controller",
		"system:serviceaccount:kube-system:replicaset-controller", "system:kube-controller-manager":
		return a.Impersonator == ""
	}
	return false
}

// AddTo adds to a report the initiator of its version; before is the version before, nil for none.
func (n *Initiators) AddTo(r *query.VersionReport, v, before *query.Version) (err error) {
	r.Initiator, err = n.of(v, before)
	return err
}

func (n *Initiators) of(v, before *query.Version) (*query.InitiatorReport, error) {
	for depth := range maxOwners {
		actor, err := n.actors.of(v)
		if err != nil || actor == nil || actor.User == "" {
			return nil, err
		}
		if !isController(actor) {
			if depth == 0 {
				return nil, nil // it is its own
			}
			return &query.InitiatorReport{
				Resource: v.Unit.GroupResource(), Namespace: v.Event.Namespace, Name: v.Event.Name,
				Version: v.Event.ResourceVersion, Time: v.Time, Actor: actor, Grade: Derived,
			}, nil
		}
		if v, err = n.cause(v, before); err != nil || v == nil {
			return nil, err
		}
		if before, err = n.history.Objects.VersionBefore(v); err != nil || !v.Event.IsCreation() && !follows(v, before) {
			return nil, err // a change that is missing may be the one
		}
	}
	return nil, nil
}

// cause returns the version of the owner that a controller made a version for; nil for none.
func (n *Initiators) cause(v, before *query.Version) (*query.Version, error) {
	of, by := v.Unit.GroupResource(), controllerOf(v)
	isReplicaSet := of == "replicasets.apps" && by.kind == "deployment" && by.group == "apps"
	isPod := of == "pods" && by.kind == "replicaset" && by.group == "apps"
	if !isReplicaSet && !isPod || v.Number() == 0 {
		return nil, nil
	}
	unit, err := n.owners.unitOf(v.Unit, by)
	if err != nil || unit == nil {
		return nil, err
	}
	o := query.Object{Unit: unit, Namespace: v.Event.Namespace, Name: by.name}
	steps, err := n.stepsOf(ownerKey{o, by.uid, v.Era()})
	if err != nil {
		return nil, err
	}
	at := lastStep(steps, v)
	var found *step
	switch {
	case at < 0:
	case isReplicaSet:
		found = causeInDeployment(steps[:at+1], v, before)
	default:
		found, err = n.causeInReplicaSet(steps, at, v, by.uid)
	}
	if err != nil || found == nil {
		return nil, err
	}
	cause, err := n.history.Objects.At(&o, query.Point{Version: found.number})
	if err == nil && (cause == nil || cause.Number() != found.number || cause.Era() != v.Era()) {
		cause = nil
	}
	return cause, err
}

// ownerKey is an owner in an era of its versions.
type ownerKey struct {
	query.Object
	uid string
	era uint32
}

// step is a version of an owner, as far as its controller acts on it. A number that is not there is
// -1.
type step struct {
	version, previous    string
	number               uint64
	earliest, time       time.Time
	isCreation           bool
	generation, observed int64
	wants, has           int64 // replicas: of the spec, of the status
	template             string
}

// stepsOf returns the versions of an owner, the oldest first.
func (n *Initiators) stepsOf(of ownerKey) ([]step, error) {
	steps, isKnown := n.steps[of]
	if isKnown {
		return steps, nil
	}
	for v, err := range n.history.Objects.Versions(&of.Object, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, err
		}
		if v.Event.UID != of.uid || v.Era() != of.era || v.Number() == 0 {
			continue
		}
		data := v.Event.Data
		s := step{
			version: v.Event.ResourceVersion, previous: v.Event.Previous,
			number: v.Number(), earliest: earliest(v), time: v.Time,
			generation: number(data, "metadata.generation"), observed: number(data, "status.observedGeneration"),
			wants: number(data, "spec.replicas"), has: number(data, "status.replicas"),
		}
		s.isCreation = v.Event.IsCreation() && s.generation == 1 && s.observed < 0
		template := diff.Field(data, "spec.template")
		if len(steps) > 0 && steps[len(steps)-1].template == string(template) {
			s.template = steps[len(steps)-1].template // one text for all
		} else {
			s.template = string(template)
		}
		steps = append(steps, s)
	}
	n.steps[of] = steps
	return steps, nil
}

func number(object []byte, path string) int64 {
	text := strings.Trim(string(diff.Field(object, path)), `"`) // an annotation is a text
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// follows reports whether the version before one is that which is known, nil for none.
func follows(v, before *query.Version) bool {
	return before != nil && v.Event.Previous == before.Event.ResourceVersion
}

// earliest is the time from which on a version can have been made.
func earliest(v *query.Version) time.Time {
	switch {
	case !v.Event.NotBefore.IsZero():
		return v.Event.NotBefore
	case v.Event.TimeSource == event.TimeObserved:
		return v.Time.Add(-event.MaxUnwatched)
	}
	return v.Time
}

// skew is how far the times of two objects may contradict the order of their versions.
const skew = 2 * time.Second

// lastStep returns the last step before a version; -1 where none is known, or another one may lie
// between: the next step must follow that one, or have the same generation. resourceVersions of two
// resources are in the order of their changes, unless an etcd of its own has one of them
// (--etcd-servers-overrides): then the times show it.
func lastStep(steps []step, v *query.Version) int {
	next := slices.IndexFunc(steps, func(s step) bool { return s.number > v.Number() })
	if next < 1 {
		return -1
	}
	last, behind := &steps[next-1], &steps[next]
	if last.earliest.After(v.Time.Add(skew)) || earliest(v).After(behind.time.Add(skew)) {
		return -1
	}
	if last.generation < 1 || last.version != behind.previous && last.generation != behind.generation {
		return -1
	}
	return next - 1
}

// causeInDeployment returns the step of a Deployment for which its controller has made a version of
// a ReplicaSet; nil for none. The last of the steps is the one before that version.
func causeInDeployment(steps []step, v, before *query.Version) *step {
	generation := steps[len(steps)-1].generation
	first := slices.IndexFunc(steps, func(s step) bool { return s.generation == generation })
	found := &steps[first]
	var last *step // what the controller had known
	if first > 0 {
		if last = &steps[first-1]; last.generation != generation-1 || last.observed != last.generation {
			return nil
		}
	} else if !found.isCreation {
		return nil
	}
	data := v.Event.Data
	switch {
	case v.Event.IsCreation() && number(data, "metadata.generation") == 1 && number(data, "status.observedGeneration") < 0:
		template := diff.Field(data, "spec.template")
		for i := range steps[:first+1] {
			isUnchanged := i > 0 && i < first && steps[i].template == steps[i-1].template
			if !isUnchanged && isMadeOf(template, steps[i].template) != (i == first) {
				return nil
			}
		}
		return found
	case v.Event.Op == event.Updated && last != nil && follows(v, before):
		const desired = "metadata.annotations[deployment.kubernetes.io/desired-replicas]"
		had, has := number(before.Event.Data, desired), number(data, desired)
		if had >= 0 && had != has && had == last.wants && has == found.wants {
			return found
		}
	}
	return nil
}

// isMadeOf reports whether the template of a ReplicaSet is that of a Deployment, with its hash.
func isMadeOf(template []byte, of string) bool {
	changes := diff.Changes([]byte(of), template)
	return len(template) > 0 && of != "" && len(changes) == 1 && changes[0].Old == nil &&
		changes[0].Path == "metadata.labels.pod-template-hash"
}

// causeInReplicaSet returns the step of a ReplicaSet, up to the last one, for which its controller
// has created a Pod; nil for none.
func (n *Initiators) causeInReplicaSet(steps []step, last int, v *query.Version, uid string) (*step, error) {
	if !isFresh(v) || !steps[0].isCreation {
		return nil, nil
	}
	for i := range last { // no change of what it wants is missing, and it never wanted less
		was, is := &steps[i], &steps[i+1]
		isNext := is.generation == was.generation || is.generation == was.generation+1
		if !isNext || was.wants < 0 || is.wants < was.wants {
			return nil, nil
		}
	}
	isComplete, err := n.hasAllSince(&steps[0], v)
	if err != nil || !isComplete {
		return nil, err
	}
	// Behind the Pod the controller has counted as many as the ReplicaSet wants: so many are known.
	full := slices.IndexFunc(steps[last+1:], func(s step) bool {
		return s.generation != steps[last].generation || s.observed == s.generation && s.has == s.wants
	})
	if full < 0 {
		return nil, nil
	}
	counted := &steps[last+1+full]
	place, all, err := n.placeAmongPods(v, uid, counted.number)
	if err != nil || place == 0 || counted.generation != steps[last].generation || all != counted.wants {
		return nil, err
	}
	found := slices.IndexFunc(steps[:last+1], func(s step) bool { return s.wants >= place })
	if found < 0 {
		return nil, nil
	}
	return &steps[found], nil
}

// isFresh reports whether a version is the creation of a Pod.
func isFresh(v *query.Version) bool {
	return v.Event.IsCreation() && len(diff.Field(v.Event.Data, "status.conditions")) == 0
}

// hasAllSince reports whether each version of the resource of v was read, from the version of a
// step on up to v.
func (n *Initiators) hasAllSince(s *step, v *query.Version) (bool, error) {
	intervals, err := n.history.Coverage.Intervals(query.CoverageQuery{
		Units: []*record.Unit{v.Unit}, Namespace: v.Event.Namespace,
	})
	return slices.ContainsFunc(intervals, func(i query.Interval) bool {
		return i.Gap == "" && i.Shard == "" && i.Has(v.Era(), s.number) && i.Has(v.Era(), v.Number())
	}), err
}

// placeAmongPods returns the place of a Pod among those of its ReplicaSet, in the order of their
// creation, from 1; 0 where one before may have been replaced. all are how many there are up to a
// version.
func (n *Initiators) placeAmongPods(v *query.Version, uid string, until uint64) (place, all int64, err error) {
	spans := n.history.Objects.ValueSpans([]*record.Unit{v.Unit}, query.ByOwner(uid), time.Time{}, time.Time{})
	for span, err := range spans {
		if err != nil {
			return 0, 0, err
		}
		created, isWhole, err := n.isWholeUntil(&span, uid, v)
		switch {
		case err == nil && created > until:
			continue
		case err != nil || !isWhole:
			return 0, 0, err
		case created <= v.Number():
			place++
		}
		all++
	}
	return place, all, nil
}

// isWholeUntil reports whether a Pod of a ReplicaSet was created where it is known first, and has
// not ended before another one was created. It returns its first version.
func (n *Initiators) isWholeUntil(
	of *query.ValueSpan, uid string, another *query.Version,
) (created uint64, isWhole bool, err error) {
	for v, err := range n.history.Objects.Versions(&of.Object, time.Time{}, time.Time{}) {
		switch {
		case err != nil:
			return 0, false, err
		case v.Event.UID != of.UID:
			continue
		case created == 0:
			if created = v.Number(); !isFresh(v) {
				return created, false, nil
			}
		}
		if v.Number() >= another.Number() {
			break
		}
		phase := string(diff.Field(v.Event.Data, "status.phase"))
		isEnding := v.Deleted() || len(diff.Field(v.Event.Data, "metadata.deletionTimestamp")) > 0 ||
			phase == `"Succeeded"` || phase == `"Failed"`
		if isEnding || controllerOf(v).uid != uid || v.Era() != another.Era() {
			return created, false, nil
		}
	}
	return created, created > 0, nil
}
