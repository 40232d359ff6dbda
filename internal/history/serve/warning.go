package serve

import (
	"strings"
	"unicode"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// warnState names what may be missing in a state.
func (q *request) warnState(wanted query.StateQuery) error {
	holes, unlisted, err := q.history.Coverage.UncertainState(wanted)
	var texts []string
	for _, m := range holes {
		texts = append(texts, m.Warning())
	}
	for i := range unlisted {
		texts = append(texts, unlisted[i].Warning())
	}
	q.warn(texts)
	return err
}

// warnObject names the holes because of which an object may have been another one at the point; v
// is its version, nil for none.
func (q *request) warnObject(
	units []*record.Unit, namespace, name string, v *query.Version,
) error {
	var texts []string
	for _, u := range units {
		holes, err := q.history.Coverage.Uncertain(&query.Object{
			Unit: u, Namespace: namespace,
			Name: name,
		}, v, q.point())
		if err != nil {
			return err
		}
		for _, m := range holes {
			texts = append(texts, m.Warning())
		}
	}
	q.warn(texts)
	return nil
}

// warn adds warnings to an answer. kubectl prints them, and client-go logs them.
func (q *request) warn(texts []string) {
	const most = 5 // headers are bounded
	for _, text := range texts[:min(len(texts), most)] {
		text = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, strings.ToValidUTF8(text[:min(len(text), 500)], " "))
		value, err := utilnet.NewWarningHeader(299, "-", text)
		if err != nil {
			q.cfg.Log.Error("a warning can't be sent", "warning", text, "err", err)
			continue
		}
		q.w.Header().Add("Warning", value)
	}
}
