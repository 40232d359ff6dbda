package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
)

// pastTree is bridge tree --at: the tree of an object at a point.
type pastTree struct {
	historyOptions
	// arrivals are the objects that may have existed already, by the uids of their owners.
	arrivals map[string][]*treeNode
}

func (t *pastTree) run(cmd *cobra.Command, args []string, at string) error {
	p, err := ask.ParsePoint("--at", at)
	if err != nil {
		return err
	}
	db, q, o, err := t.openObject(cmd, args, p)
	if err != nil {
		return err
	}
	defer db.Close()
	v, _, err := q.Existing(o, p)
	if err != nil {
		return failedQuestion(err)
	}
	root := pastNode(v)
	q.Cluster, q.Namespace = o.Unit.Cluster(), o.Namespace
	if q.Namespace == "" {
		q.Namespace = "*" // what is in no namespace owns what is in any
	}
	state, err := q.State(nil, p) // what may be wrong of it may be wrong of the tree
	if err != nil {
		return failedQuestion(err)
	}
	if err := warnState(cmd, q, &state); err != nil {
		return err
	}
	if err := t.readArrivals(db.Questions.Objects, &state); err != nil {
		return Failed(err)
	}
	if err := root.grow(func(uid string) ([]*treeNode, error) {
		return t.owned(q, &state, uid)
	}); err != nil {
		return Failed(err)
	}
	rows := treeRows{now: p.At}
	if p.At.IsZero() {
		if rows.now, err = db.Questions.Timeline.TimeOf(q.Cluster, p.Version); err != nil {
			return Failed(err)
		}
	}
	return Failed(rows.write(cmd.OutOrStdout(), root, t.output))
}

// readArrivals finds the objects whose creation became known late.
func (t *pastTree) readArrivals(objects query.Objects, s *ask.State) error {
	t.arrivals = map[string][]*treeNode{}
	for v, err := range objects.Arrivals(s.StateQuery) {
		if err != nil {
			return err
		}
		n := pastNode(v)
		n.Arrived = true
		for _, uid := range query.OwnersOf(v) {
			t.arrivals[uid] = append(t.arrivals[uid], n)
		}
	}
	return nil
}

// owned returns the objects that an object owned.
func (t *pastTree) owned(q *ask.Question, s *ask.State, uid string) (list []*treeNode, err error) {
	for v, err := range q.Owned(s, uid) {
		if err != nil {
			return nil, err
		}
		list = append(list, pastNode(v))
	}
	return append(list, t.arrivals[uid]...), nil
}

// pastNode returns an object in a version, which may be overwritten.
func pastNode(v *query.Version) *treeNode {
	e := &v.Event
	created := resource.Member(resource.Member(e.Data, "metadata"), "creationTimestamp")
	n := &treeNode{Uncertain: v.LateChange}
	n.IndexedObject = informer.IndexedObject{
		Informer: e.Informer, Resource: v.Unit.GroupResource(), Kind: e.Kind,
		Namespace: e.Namespace, Name: e.Name, UID: strings.Clone(e.UID),
		Version: strings.Clone(e.ResourceVersion),
		Created: strings.Trim(string(created), `"`), Ready: informer.ReadyOf(e.Data),
	}
	return n
}
