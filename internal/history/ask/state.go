package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/internal/history/query"
)

// state answers with what is uncertain in the first line, and an object in each that follows.
func (h *Set) state(ctx context.Context, values url.Values) (any, error) {
	selector, err := labels.Parse(values.Get("selector"))
	if err != nil {
		return nil, badQuestion(fmt.Errorf("selector: %w", err))
	}
	o, ctx, release := h.ask(ctx)
	if o == nil {
		return nil, noHistory()
	}
	if err := o.slot(ctx); err != nil {
		release()
		return nil, err
	}
	a := &asked{history: o.history, q: values}
	head, wanted, err := a.stateQuery()
	o.free()
	if err != nil {
		release()
		return nil, classifyAnswer(err)
	}
	return iter.Seq2[any, error](func(yield func(any, error) bool) {
		defer release()
		hasSlot := false
		defer func() {
			if hasSlot {
				o.free()
			}
		}()
		// give passes a line on. A reader may be slow: while it is waited for, others may ask.
		give := func(line any) bool {
			if hasSlot {
				o.free()
			}
			if hasSlot = false; !yield(line, nil) {
				return false
			}
			if err := o.slot(ctx); err != nil {
				yield(nil, err)
				return false
			}
			hasSlot = true
			return true
		}
		if !give(head) {
			return
		}
		for v, err := range o.history.Objects.State(wanted) {
			if err == nil && o.isEnding() {
				err = context.Canceled
			}
			if err := cmp.Or(err, ctx.Err()); err != nil {
				yield(nil, err)
				return
			}
			if !selector.Empty() && !selector.Matches(v.Labels()) {
				continue
			}
			r := stateLine{
				objectReport{v.Unit.Cluster(), v.Unit.GroupResource(), v.Event.Namespace, v.Event.Name},
				v.Report(nil), nil,
			}
			if json.Valid(v.Event.Data) {
				r.Object = v.Event.Data
			}
			if !give(r) {
				return
			}
		}
	}), nil
}

// stateHead is the first line of a state.
type stateHead struct {
	At string `json:"at,omitempty"`
	uncertainty
	// Unlisted are resources of which no list had ended.
	Unlisted []string `json:"unlisted"`
}

// stateLine is each other one.
type stateLine struct {
	objectReport
	query.VersionReport
	Object json.RawMessage `json:"object,omitempty"`
}

func (a *asked) stateQuery() (head stateHead, wanted query.StateQuery, err error) {
	p, err := a.point("at")
	cluster, clusterErr := a.cluster()
	if err := cmp.Or(err, clusterErr); err != nil {
		return head, wanted, err
	}
	wanted = query.StateQuery{Namespace: a.namespace(), At: p}
	if wanted.Units, err = a.units(cluster); err != nil {
		return head, wanted, err
	}
	if err := a.history.Coverage.CheckState(wanted); err != nil {
		return head, wanted, err
	}
	holes, unlisted, err := a.history.Coverage.UncertainState(wanted)
	if err != nil {
		return head, wanted, err
	}
	if head.uncertainty, err = a.uncertainty(holes); err != nil {
		return head, wanted, err
	}
	if !p.IsZero() {
		head.At = p.String()
	}
	head.Unlisted = []string{}
	for _, u := range unlisted {
		head.Unlisted = append(head.Unlisted, u.Unit.GroupResource())
	}
	return head, wanted, nil
}
