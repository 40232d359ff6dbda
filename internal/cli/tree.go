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
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/informer"
)

func newTreeCommand() *cobra.Command {
	var namespace string
	output := "table"
	cmd := &cobra.Command{
		Use:   "tree KIND/NAME",
		Short: "Show what an object owns now, as a running bridge knows it",
		Long: `tree shows an object and all that it owns, by owner references: a Deployment, its ReplicaSets,
their Pods. It asks the running bridge, which reads these objects alone, and not the API server.
Objects that no informer watches are not shown, and neither is what they own.

READY is the status of the condition Ready, or else Available.` + clientHelp,
		Example: `  bridge tree deploy/web -n shop
  bridge tree cronjob/backup -n ops --output json`,
		Args: cobra.RangeArgs(1, 2),
	}
	c := newClient(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the object; none: it has "+
		"none")
	OutputFlag(cmd, &output, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, name, err := objectArgs(args)
		if err != nil {
			return err
		}
		at, err := c.endpoint()
		if err != nil {
			return Refused(err)
		}
		t := &treeReader{client: newStatusClient(at, c.Token), seen: map[string]bool{}}
		root, err := t.read(cmd.Context(), kind, namespace, name)
		if err != nil {
			return err
		}
		if err := root.write(cmd.OutOrStdout(), output); err != nil {
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
	Owns []*treeNode `json:"owns,omitempty"`
}

// treeReader asks a bridge for a tree.
type treeReader struct {
	client     *statusClient
	seen       map[string]bool // uids: an object may be watched twice, and owners may be a cycle
	incomplete []string        // informers whose index is being built
}

// read reads a tree. Its error has the exit code.
func (t *treeReader) read(ctx context.Context, kind, namespace, name string) (*treeNode, error) {
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
	return root, Failed(t.readOwned(ctx, root))
}

// readOwned reads what an object owns.
func (t *treeReader) readOwned(ctx context.Context, of *treeNode) error {
	t.seen[of.UID] = true
	var found bridge.IndexedObjects
	q := url.Values{"index": {"owner"}, "value": {of.UID}}
	if err := t.get(ctx, "/objects?"+q.Encode(), &found); err != nil {
		return err
	}
	for _, name := range found.Incomplete {
		if !slices.Contains(t.incomplete, name) {
			t.incomplete = append(t.incomplete, name)
		}
	}
	for _, object := range found.Objects {
		if t.seen[object.UID] {
			continue
		}
		owned := &treeNode{IndexedObject: object}
		of.Owns = append(of.Owns, owned)
		if err := t.readOwned(ctx, owned); err != nil {
			return err
		}
	}
	slices.SortFunc(of.Owns, func(a, b *treeNode) int {
		return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name)
	})
	return nil
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

// write writes the tree as a table, or as JSON.
func (n *treeNode) write(w io.Writer, output string) error {
	if output == "json" {
		return terminal.PrintJSON(w, n)
	}
	table := terminal.NewTable(w)
	fmt.Fprintln(table, "NAME\tREADY\tAGE\tVERSION")
	n.writeRow(table, "", "")
	return table.Flush()
}

// writeRow writes an object behind branch, and what it owns behind below.
func (n *treeNode) writeRow(w io.Writer, branch, below string) {
	age := "-"
	if created, err := time.Parse(time.RFC3339, n.Created); err == nil {
		age = time.Since(created).Round(time.Second).String()
	}
	ready := n.Ready
	if ready == "" {
		ready = "-"
	}
	fmt.Fprintf(w, "%s%s/%s\t%s\t%s\t%s\n", branch, terminal.Plain(n.Kind), terminal.Plain(n.Name),
		terminal.Plain(ready), age, terminal.Plain(n.Version))
	for i, owned := range n.Owns {
		if i < len(n.Owns)-1 {
			owned.writeRow(w, below+"├─", below+"│ ")
		} else {
			owned.writeRow(w, below+"└─", below+"  ")
		}
	}
}
