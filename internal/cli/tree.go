package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
)

func newTreeCommand() *cobra.Command {
	past := &pastTree{historyOptions: historyOptions{output: "table"}}
	cmd := &cobra.Command{
		Use:   "tree KIND/NAME",
		Short: "Show what an object owns, or owned at a time",
		Long: `tree shows an object and all that it owns, by owner references: a Deployment, its ReplicaSets,
their Pods. It asks the running bridge, which reads these objects alone, and not the API server.
Objects that no informer watches are not shown, and neither is what they own.

With --at it shows what was at a time, from the history: a running bridge is not needed. What may
be wrong goes to standard error, and marks objects, as in 'bridge state'.

READY is the status of the condition Ready, or else Available.

` + timeHelp + clientHelp,
		Example: `  bridge tree deploy/web -n shop
  bridge tree deploy/web -n shop --at 14:03
  bridge tree cronjob/backup -n ops --output json`,
		Args: cobra.RangeArgs(1, 2),
	}
	c := newClient(cmd)
	past.settings = c.Settings
	past.placeFlags(cmd)
	at := ""
	cmd.Flags().StringVar(&at, "at", "", "time or resourceVersion; none: now")
	cmd.Flags().StringVarP(&past.namespace, "namespace", "n", "", "namespace of the object; none: it "+
		"has none")
	OutputFlag(cmd, &past.output, "table", "json")
	cmd.ValidArgsFunction = past.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if at != "" {
			return past.run(cmd, args, at)
		}
		for _, flag := range []string{"dir", "cluster"} {
			if cmd.Flags().Changed(flag) {
				return fmt.Errorf("--%s is of a history: give a time with --at", flag)
			}
		}
		kind, name, err := objectArgs(args)
		if err != nil {
			return err
		}
		server, err := c.endpoint()
		if err != nil {
			return Refused(err)
		}
		t := &treeReader{client: newStatusClient(server, c.Token)}
		root, err := t.read(cmd.Context(), kind, past.namespace, name)
		if err != nil {
			return err
		}
		rows := treeRows{now: time.Now()}
		if err := rows.write(cmd.OutOrStdout(), root, past.output); err != nil {
			return Failed(err)
		}
		if len(t.incomplete) > 0 {
			return Failed(fmt.Errorf("objects may be missing: the index is being built of %s",
				strings.Join(t.incomplete, ", ")))
		}
		return nil
	}
	return cmd
}

// treeNode is an object with what it owns.
type treeNode struct {
	informer.IndexedObject
	// Uncertain is the change because of which it may have been over at the time of the question;
	// with Arrived it may have existed already.
	Uncertain *query.LateChange `json:"uncertain,omitempty"`
	Arrived   bool              `json:"mayHaveExisted,omitempty"`
	Owns      []*treeNode       `json:"owns,omitempty"`
}

// grow adds to an object what it owns, and what that owns. owned returns the objects that one
// owns. An object is there once: it may be watched twice, and owners may be a cycle.
func (n *treeNode) grow(owned func(uid string) ([]*treeNode, error)) error {
	return n.growNew(owned, map[string]bool{})
}

func (n *treeNode) growNew(
	owned func(uid string) ([]*treeNode, error), seen map[string]bool,
) error {
	seen[n.UID] = true
	found, err := owned(n.UID)
	if err != nil {
		return err
	}
	for _, o := range found {
		if seen[o.UID] {
			continue
		}
		n.Owns = append(n.Owns, o)
		if err := o.growNew(owned, seen); err != nil {
			return err
		}
	}
	slices.SortFunc(n.Owns, func(a, b *treeNode) int {
		return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name)
	})
	return nil
}

// treeReader asks a bridge for a tree.
type treeReader struct {
	client     *statusClient
	incomplete []string // informers whose index is being built
}

// read reads a tree. Its error has the exit code.
func (t *treeReader) read(ctx context.Context, kind, namespace, name string) (*treeNode, error) {
	state, err := t.find(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	root := &treeNode{IndexedObject: informer.IndexedObject{
		Informer: state.Informer, Resource: state.Resource, Namespace: state.Namespace,
		Name: state.Name, UID: state.UID, Version: state.Version,
	}}
	var body struct {
		Kind     string
		Metadata struct{ CreationTimestamp string }
	}
	if err := json.Unmarshal(state.Object, &body); err != nil {
		return nil, Failed(fmt.Errorf("%s/%s: %w", kind, name, err))
	}
	root.Kind, root.Created = body.Kind, body.Metadata.CreationTimestamp
	root.Ready = informer.ReadyOf(state.Object)
	return root, Failed(root.grow(func(uid string) ([]*treeNode, error) { return t.owned(ctx, uid) }))
}

// find reads the newest state of an object. Its error has the exit code.
func (t *treeReader) find(
	ctx context.Context, kind, namespace, name string,
) (*informer.ObjectState, error) {
	status, err := t.client.ask(ctx)
	if err != nil {
		return nil, Refused(err)
	}
	resource, err := watchedResource(status.Informers, kind)
	if err != nil {
		return nil, Refused(err)
	}
	q := url.Values{"resource": {resource}, "namespace": {namespace}, "name": {name}}
	var found []informer.ObjectState
	if err := t.get(ctx, "/object?"+q.Encode(), &found); err != nil {
		return nil, Failed(err)
	}
	state := &found[0] // there is one, or it was refused
	if state.Deleted {
		return nil, Failed(fmt.Errorf("%s/%s is deleted as of version %s", kind, name, state.Version))
	}
	return state, nil
}

// owned returns the objects that an object owns.
func (t *treeReader) owned(ctx context.Context, uid string) (list []*treeNode, err error) {
	var found bridge.IndexedObjects
	q := url.Values{"index": {"owner"}, "value": {uid}}
	if err := t.get(ctx, "/objects?"+q.Encode(), &found); err != nil {
		return nil, err
	}
	for _, name := range found.Incomplete {
		if !slices.Contains(t.incomplete, name) {
			t.incomplete = append(t.incomplete, name)
		}
	}
	for _, object := range found.Objects {
		list = append(list, &treeNode{IndexedObject: object})
	}
	return list, nil
}

func (t *treeReader) get(ctx context.Context, path string, into any) error {
	body, err := t.client.get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// watchedResource finds the resource that a name as kubectl takes it means, among those of the
// informers.
func watchedResource(units []informer.Status, name string) (string, error) {
	word := strings.ToLower(name)
	var found []string
	for i := range units {
		full := units[i].Resource
		plural, group, _ := strings.Cut(full, ".")
		isMeant := word == full || word == plural || slices.Contains(singulars(plural), word) ||
			slices.Contains(query.ShortNames(group, plural), word)
		if isMeant && !slices.Contains(found, full) {
			found = append(found, full)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no informer watches a resource %q", name)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%q is one of %s: say which", name, strings.Join(found, ", "))
}

// singulars returns the words that may have a plural.
func singulars(plural string) []string {
	return []string{
		strings.TrimSuffix(plural, "s"), strings.TrimSuffix(plural, "es"),
		strings.TrimSuffix(plural, "ies") + "y",
	}
}

// treeRows writes a tree.
type treeRows struct {
	w   io.Writer
	now time.Time // which ages are to; zero for none
	// uncertain and arrived are how many objects are marked.
	uncertain, arrived int
}

// write writes a tree as a table, or as JSON.
func (r *treeRows) write(w io.Writer, root *treeNode, output string) error {
	if output == "json" {
		return terminal.PrintJSON(w, root)
	}
	table := terminal.NewTable(w)
	r.w = table
	fmt.Fprintln(table, "NAME\tREADY\tAGE\tVERSION")
	r.row(root, "", "")
	if err := table.Flush(); err != nil {
		return err
	}
	return printMarks(w, r.uncertain, r.arrived)
}

// row writes an object behind branch, and what it owns behind below.
func (r *treeRows) row(n *treeNode, branch, below string) {
	age, mark := "-", ""
	if created, err := time.Parse(time.RFC3339, n.Created); err == nil && !r.now.IsZero() {
		age = r.now.Sub(created).Round(time.Second).String()
	}
	ready := n.Ready
	if ready == "" {
		ready = "-"
	}
	switch {
	case n.Arrived:
		mark, r.arrived = "+", r.arrived+1
	case n.Uncertain != nil:
		mark, r.uncertain = "*", r.uncertain+1
	}
	fmt.Fprintf(r.w, "%s%s/%s%s\t%s\t%s\t%s\n", branch, terminal.Plain(n.Kind),
		terminal.Plain(n.Name), mark, terminal.Plain(ready), age, terminal.Plain(n.Version))
	for i, owned := range n.Owns {
		if i < len(n.Owns)-1 {
			r.row(owned, below+"├─", below+"│ ")
		} else {
			r.row(owned, below+"└─", below+"  ")
		}
	}
}

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
