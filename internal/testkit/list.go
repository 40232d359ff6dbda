package testkit

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
)

// snapshot is what is left of a paged list.
type snapshot struct {
	version int64
	items   [][]byte
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, sel selection) {
	raw, zip, status := s.renderList(r.URL.Query(), sel)
	if status != nil {
		writeStatus(w, status)
		return
	}
	out := answer(w, zip)
	_, _ = out.Write(raw) // the client may be gone
	_ = out.Close()
}

// answer begins a 200.
func answer(w http.ResponseWriter, zip bool) io.WriteCloser {
	w.Header().Set("Content-Type", "application/json")
	if !zip {
		return struct {
			io.Writer
			io.Closer
		}{w, io.NopCloser(nil)}
	}
	w.Header().Set("Content-Encoding", "gzip")
	return gzipMember{gzip.NewWriter(w)}
}

// gzipMember flushes before it ends, as kube-apiserver does: a reader gets the end of a member's
// data only with the beginning of the next one otherwise.
type gzipMember struct{ *gzip.Writer }

func (m gzipMember) Close() error {
	if err := m.Flush(); err != nil {
		return err
	}
	return m.Writer.Close()
}

func (s *Server) renderList(
	q url.Values, sel selection,
) (raw []byte, zip bool, status *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, status := s.startList(q, sel)
	if status != nil {
		return nil, false, status
	}
	page, token := from.items, ""
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 && limit < len(page) {
		page = page[:limit]
		token = fmt.Sprintf("%d-%d", from.version, len(s.tokens)+1)
		s.tokens[token] = &snapshot{from.version, from.items[limit:]}
	}
	raw = s.renderPage(page, from.version, token, len(from.items)-len(page))
	if s.features.Pretty {
		raw = pretty(raw)
	}
	return raw, s.features.Gzip, nil
}

// startList gives the items to serve, from a token or by the rules of resourceVersionMatch.
func (s *Server) startList(q url.Values, sel selection) (*snapshot, *metav1.Status) {
	version, match := resource.Version(q.Get("resourceVersion")),
		metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	if token := q.Get("continue"); token != "" {
		if version != "" || match != "" {
			return nil, invalid("resourceVersion and resourceVersionMatch are forbidden with " +
				"continue")
		}
		if s.tokens[token] == nil {
			return nil, NewStatus(http.StatusGone, metav1.StatusReasonExpired)
		}
		return s.tokens[token], nil
	}
	asked := s.parseVersion(version)
	exact := match == metav1.ResourceVersionMatchExact || match == "" && q.Get("limit") != "" &&
		version != "" && version != "0"
	switch {
	case match != "" && version == "":
		return nil, invalid("resourceVersionMatch is forbidden unless resourceVersion is provided")
	case asked > s.revision:
		return nil, tooLarge(asked, s.revision)
	case exact && asked < s.compacted:
		return nil, NewStatus(http.StatusGone, metav1.StatusReasonExpired)
	case exact:
		return &snapshot{asked, s.renderItems(s.objectsAt(asked), sel)}, nil
	}
	return &snapshot{s.revision, s.renderItems(s.objects, sel)}, nil
}

// objectsAt is what there was at a version.
func (s *Server) objectsAt(version int64) map[resource.Key]*revision {
	objects := maps.Clone(s.objects)
	for _, c := range slices.Backward(s.history) {
		if c.version <= version {
			break
		}
		if objects[c.key] = c.before; c.before == nil {
			delete(objects, c.key)
		}
	}
	return objects
}

func (s *Server) sortedKeys() []resource.Key { return slices.Sorted(maps.Keys(s.objects)) }

func (s *Server) renderItems(objects map[resource.Key]*revision, sel selection) [][]byte {
	var items [][]byte
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if r := objects[key]; sel.matches(key, r) {
			items = append(items, s.render(r.content, r.version, true))
		}
	}
	return items
}

// renderPage puts the metadata before the items for built-in resources, and after them for custom
// ones.
func (s *Server) renderPage(items [][]byte, version int64, token string, remaining int) []byte {
	meta := map[string]any{"resourceVersion": string(s.versionOf(version))}
	if token != "" {
		meta["continue"], meta["remainingItemCount"] = token, remaining
	}
	array := []byte{'['}
	for i, item := range items {
		if i > 0 {
			array = append(array, ',')
		}
		array = append(array, item...)
	}
	array = append(array, ']')
	kind := member{"kind", mustMarshal(s.typ.Kind + "List")}
	version1 := member{"apiVersion", mustMarshal(s.typ.APIVersion())}
	if s.custom {
		return renderObject([]member{
			version1,
			{"items", array},
			kind,
			{"metadata", mustMarshal(meta)},
		})
	}
	return renderObject([]member{kind, version1, {"metadata", mustMarshal(meta)}, {"items", array}})
}
