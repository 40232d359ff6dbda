package ask

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// change is a version of a Deployment, a ReplicaSet (of its image) or a Pod in a story.
type change struct {
	kind, name           string
	op                   event.Op // "": updated
	generation, observed int
	wants, has, desired  int
	image                string
	user, impersonator   string
	owner, phase, cause  string
	previous             string // "": the one before in the story
	initial              bool
	era                  int
	late                 time.Duration
}

// story has changes by their resourceVersion. Pods are read from one version on up to another.
type story struct {
	changes map[int]*change
	from    int
	gap     string
}

const (
	deploymentController = "system:serviceaccount:kube-system:deployment-controller"
	replicaSetController = "system:serviceaccount:kube-system:replicaset-controller"
)

// newStory: alice creates a Deployment of two replicas, bob wants four, carol sets an image.
func newStory() *story {
	pod := func(name string) *change {
		return &change{kind: "Pod", name: name, op: event.Added, user: replicaSetController, owner: "ReplicaSet/web-v1", phase: "Pending"}
	}
	web := func(c change) *change {
		c.kind, c.name = "Deployment", "web"
		return &c
	}
	v1 := func(c change) *change {
		c.kind, c.name, c.owner, c.image = "ReplicaSet", "web-v1", "Deployment/web", "v1"
		return &c
	}
	return &story{from: 90, changes: map[int]*change{
		100: web(change{op: event.Added, generation: 1, wants: 2, image: "v1", user: "alice"}),
		101: v1(change{op: event.Added, generation: 1, wants: 2, desired: 2, user: deploymentController}),
		102: web(change{generation: 1, observed: 1, wants: 2, image: "v1", user: deploymentController}),
		103: pod("p1"), 104: pod("p2"),
		105: v1(change{generation: 1, observed: 1, wants: 2, has: 2, desired: 2, user: replicaSetController}),
		110: web(change{generation: 2, observed: 1, wants: 4, image: "v1", user: "bob"}),
		111: v1(change{generation: 2, observed: 1, wants: 4, has: 2, desired: 4, user: deploymentController}),
		112: web(change{generation: 2, observed: 2, wants: 4, image: "v1", user: deploymentController}),
		113: pod("p3"), 114: pod("p4"),
		115: v1(change{generation: 2, observed: 2, wants: 4, has: 4, desired: 4, user: replicaSetController}),
		120: web(change{generation: 3, observed: 2, wants: 4, image: "v2", user: "carol"}),
		121: {
			kind: "ReplicaSet", name: "web-v2", owner: "Deployment/web", image: "v2", op: event.Added, generation: 1, wants: 1, desired: 4,
			user: deploymentController,
		},
		122: web(change{generation: 3, observed: 3, wants: 4, image: "v2", user: deploymentController}),
	}}
}

// changeBehind has dora change the Deployment right behind what the controller did for bob.
func (s *story) changeBehind(previous string) {
	s.changes[112] = &change{kind: "Deployment", name: "web", generation: 3, observed: 1, wants: 3, image: "v1", user: "dora", previous: previous}
	s.changes[120].generation, s.changes[122].generation = 4, 4
}

var storyBegin = time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)

// events returns the version, and who made it.
func (c *change) events(version int, previous string) []*event.Event {
	type object = map[string]any
	group := "apps"
	meta := object{"name": c.name, "uid": c.name}
	data := object{"apiVersion": "apps/v1", "kind": c.kind, "metadata": meta}
	spec, status := object{}, object{}
	if c.kind == "Pod" {
		group = ""
		status["phase"] = c.phase
	} else {
		meta["generation"] = c.generation
		labels := object{"app": "web"}
		if c.kind == "ReplicaSet" {
			labels["pod-template-hash"] = "hash"
			meta["annotations"] = object{"deployment.kubernetes.io/desired-replicas": fmt.Sprint(c.desired)}
		}
		spec["replicas"], status["replicas"] = c.wants, c.has
		spec["template"] = object{"metadata": object{"labels": labels}, "spec": object{"containers": []any{object{"name": "app", "image": c.image}}}}
		if c.observed > 0 {
			status["observedGeneration"] = c.observed
		}
	}
	data["spec"], data["status"] = spec, status
	var kind, name string
	if c.owner != "" {
		kind, name, _ = SplitObject(c.owner)
		meta["ownerReferences"] = []any{object{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}}
	}
	text, _ := json.Marshal(data)
	resource := map[string]string{"Pod": "pods", "ReplicaSet": "replicasets", "Deployment": "deployments"}[c.kind]
	e := &event.Event{
		ID: fmt.Sprint(c.name, "/", version), Source: "/clusters/prod", Op: cmp.Or(c.op, event.Updated), Informer: "all",
		Time: storyBegin.Add(time.Duration(version)*time.Second + c.late), Sequence: fmt.Sprintf("%08d.%020d", c.era, version),
		ObjectAttributes: event.ObjectAttributes{
			Resource: resource, Kind: c.kind, Namespace: "shop", Name: c.name, UID: c.name, ResourceVersion: fmt.Sprint(version), Previous: cmp.Or(c.previous, previous),
		},
		OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields, Initial: c.initial, Cause: c.cause},
		Routing:          event.Routing{Group: group}, Data: text,
	}
	if e.Type = "dev.kubebridge.resource." + string(e.Op); e.Op == event.Deleted {
		e.Sequence += ".deleted"
	}
	who := *e
	who.ID, who.Type, who.Op = e.ID+event.AttributedSuffix, event.TypeAttributed, event.Attributed
	who.Data = fmt.Appendf(nil, `{"change":%q,"user":%q,"impersonator":%q,"grade":"exact"}`, e.ID, c.user, c.impersonator)
	if c.user == "" {
		who.Data = fmt.Appendf(nil, `{"change":%q,"unknown":"no request"}`, e.ID)
	}
	return []*event.Event{e, &who}
}

// initiators records the story, and returns the initiator of each version that has one.
func (s *story) initiators(t *testing.T) map[int]string {
	t.Helper()
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer db.Close()
	about := func(op event.Op, version int, data string) *event.Event {
		return &event.Event{
			ID: fmt.Sprintf("all/pods/%s/%d", op, version), Source: "/clusters/prod", Type: "dev.kubebridge.informer." + string(op), Op: op, Informer: "all",
			Time: storyBegin.Add(time.Duration(version) * time.Second), ObjectAttributes: event.ObjectAttributes{
				Resource: "pods", Kind: "Pod", ResourceVersion: fmt.Sprint(version),
			}, Data: []byte(data),
		}
	}
	events := []*event.Event{about(event.Synced, s.from, "{}")}
	previous := map[string]string{}
	for _, version := range slices.Sorted(maps.Keys(s.changes)) {
		c := s.changes[version]
		events = append(events, c.events(version, previous[c.name])...)
		previous[c.name] = fmt.Sprint(version)
	}
	if s.gap != "" {
		events = append(events, about(event.Gap, 107, s.gap), about(event.Synced, 107, "{}"))
	}
	_, err = db.Writer.Append(t.Context(), append(events, about(event.Progress, 200, "{}")))
	testkit.OK(t, err)

	found := map[int]string{}
	initiators := NewInitiators(NewActors(db.Questions))
	for _, u := range db.Questions.Resources.Units() {
		for o, err := range db.Questions.Objects.All(u, "") {
			testkit.OK(t, err)
			var before *query.Version
			for v, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				testkit.OK(t, err)
				var r query.VersionReport
				testkit.OK(t, initiators.AddTo(&r, v, before))
				if r.Initiator != nil {
					found[int(v.Number())] = r.Initiator.String()
				}
				before = v
			}
		}
	}
	return found
}

// The initiator of a controller's change is named where it is proven, and only there.
func TestInitiator(t *testing.T) {
	t.Parallel()
	const alice, bob, carol = "alice: deployments.apps/web, version 100", "bob: deployments.apps/web, version 110", "carol: deployments.apps/web, version 120"
	all := map[int]string{101: alice, 103: alice, 104: alice, 111: bob, 113: bob, 114: bob, 121: carol}
	created, scaled, pods := []int{101, 103, 104}, []int{111, 113, 114}, []int{103, 104, 113, 114}
	for _, test := range []struct {
		name   string
		change func(s *story)
		lacks  []int // of all
		adds   map[int]string
	}{
		{"everything is known", func(*story) {}, nil, nil},
		{"the user of the change is not known", func(s *story) { s.changes[110].user = "" }, scaled, nil},
		{"two changes that the controller did not know", func(s *story) {
			s.changes[109] = new(*s.changes[110])
			s.changes[109].wants = 3
			for _, version := range []int{110, 112} {
				s.changes[version].generation++
			}
			s.changes[112].observed++
			s.changes[120].generation, s.changes[120].observed, s.changes[122].generation = 4, 3, 4
		}, scaled, nil},
		{"the controller may not have known the version before", func(s *story) { s.changes[102].observed = 0 }, scaled, nil},
		{"the version before is missing", func(s *story) {
			delete(s.changes, 112)
			s.changes[120].previous = "112"
		}, []int{111, 113, 114, 121}, nil},
		{"a change of the Deployment before is missing", func(s *story) {
			s.changes[110].generation, s.changes[112].generation, s.changes[112].observed = 3, 3, 3
			s.changes[120].generation, s.changes[120].observed, s.changes[122].generation = 4, 3, 4
		}, scaled, nil},
		{"the change itself is missing", func(s *story) { delete(s.changes, 110) }, scaled, nil},
		{"the change itself is missing, and the next one is there", func(s *story) {
			s.changes[110].user, s.changes[110].previous = "dora", "109"
		}, scaled, nil},
		{"the version of the ReplicaSet before is missing", func(s *story) { s.changes[111].previous = "109" }, scaled, nil},
		{"the change of the ReplicaSet is missing, and the next one is there", func(s *story) {
			s.changes[111].user, s.changes[111].previous = "dora", "109"
		}, scaled, nil},
		{"the Deployment changes right behind", func(s *story) { s.changeBehind("") }, []int{121}, nil},
		{"a version behind is missing, and the next one has the generation", func(s *story) { s.changes[112].previous = "109" }, nil, nil},
		{"the Deployment may have changed before", func(s *story) { s.changeBehind("109") }, append(scaled, 121), nil},
		{"the Deployment may have changed meanwhile", func(s *story) { delete(s.changes, 122) }, []int{121}, nil},
		{"the Deployment has not its first version", func(s *story) { s.changes[100].initial = true }, created, nil},
		{"the Deployment had an earlier version", func(s *story) {
			for _, c := range s.changes {
				if c.kind == "Deployment" {
					c.generation++
					c.observed = max(c.observed+1, 2)
				}
			}
			s.changes[100].observed = 0
		}, created, nil},
		{"the controller scales the old ReplicaSet of a rollout", func(s *story) {
			s.changes[121] = new(*s.changes[115])
			s.changes[121].wants, s.changes[121].user = 0, deploymentController
		}, []int{121}, nil},
		{"another one of the Deployment's changes has set the template", func(s *story) {
			s.changes[120].image, s.changes[122].image, s.changes[121].image = "v1", "v1", "v1"
		}, []int{121}, nil},
		{"the template came, and came again", func(s *story) {
			s.changes[116] = new(*s.changes[120])
			s.changes[117] = new(*s.changes[122])
			s.changes[120] = &change{kind: "Deployment", name: "web", generation: 4, observed: 3, wants: 4, image: "v1", user: "dora"}
			s.changes[122] = &change{kind: "Deployment", name: "web", generation: 4, observed: 4, wants: 4, image: "v1", user: deploymentController}
			s.changes[121].image = "v1"
		}, []int{121}, nil},
		{"the ReplicaSet has another template", func(s *story) { s.changes[121].image = "v3" }, []int{121}, nil},
		{"the ReplicaSet came into the selection", func(s *story) { s.changes[101].cause = event.CauseEntered }, append(created, 113, 114), nil},
		{"the controller noted another number", func(s *story) { s.changes[111].desired = 5 }, scaled, nil},
		{"the controller had noted another number", func(s *story) { s.changes[101].desired, s.changes[105].desired = 3, 3 }, scaled, nil},
		{"a step of a rollout", func(s *story) { s.changes[111].desired, s.changes[115].desired = 2, 2 }, scaled, nil},
		{"etcd was restored", func(s *story) {
			for version, c := range s.changes {
				if version >= 110 {
					c.era = 1
				}
			}
		}, scaled, nil},
		{"versions of two resources are not in one order", func(s *story) { s.changes[111].late = time.Hour }, []int{111, 113, 114}, nil},
		{"a user made the ReplicaSet", func(s *story) { s.changes[101].user = "mallory" }, []int{101}, map[int]string{
			103: "mallory: replicasets.apps/web-v1, version 101", 104: "mallory: replicasets.apps/web-v1, version 101",
		}},
		{"a user plays the controller", func(s *story) { s.changes[111].impersonator = "mallory" }, []int{111}, map[int]string{
			113: deploymentController + " (impersonated by mallory): replicasets.apps/web-v1, version 111",
			114: deploymentController + " (impersonated by mallory): replicasets.apps/web-v1, version 111",
		}},
		{"the controller made the Deployment's change, a rollback", func(s *story) { s.changes[120].user = deploymentController }, []int{121}, nil},
		{"a Pod was deleted before", func(s *story) {
			s.changes[108] = new(*s.changes[103])
			s.changes[108].op = event.Deleted
		}, []int{113, 114}, nil},
		{"a Pod had failed before", func(s *story) {
			s.changes[108] = new(*s.changes[103])
			s.changes[108].op, s.changes[108].phase = event.Updated, "Failed"
		}, []int{113, 114}, nil},
		{"a Pod was released before", func(s *story) {
			s.changes[108] = new(*s.changes[103])
			s.changes[108].op, s.changes[108].owner = event.Updated, ""
		}, []int{113, 114}, nil},
		{"a list has shown a Pod", func(s *story) { s.changes[104].initial = true }, pods, nil},
		{"a Pod is not known", func(s *story) { delete(s.changes, 104) }, pods, nil},
		{"Pods were read later", func(s *story) { s.from = 102 }, pods, nil},
		{"Pods have a gap", func(s *story) { s.gap = `{"reason":"expired","from":"106","to":"107"}` }, []int{113, 114}, nil},
		{"the controller has not counted the Pods", func(s *story) { s.changes[115].has = 3 }, []int{113, 114}, nil},
		{"the ReplicaSet wanted less meanwhile", func(s *story) {
			s.changes[106] = new(*s.changes[105])
			s.changes[106].generation, s.changes[106].wants, s.changes[106].user = 2, 1, "mallory"
			s.changes[111].generation, s.changes[115].generation, s.changes[115].observed = 3, 3, 3
		}, []int{113, 114}, nil},
		{"a change of the ReplicaSet is missing", func(s *story) {
			s.changes[111].generation, s.changes[115].generation, s.changes[115].observed = 3, 3, 3
		}, []int{113, 114}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := maps.Clone(all)
			for _, version := range test.lacks {
				delete(want, version)
			}
			maps.Copy(want, test.adds)
			s := newStory()
			test.change(s)
			if got := s.initiators(t); !maps.Equal(got, want) {
				t.Errorf("%v\nwant %v", got, want)
			}
		})
	}
}
