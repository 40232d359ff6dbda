package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// serveList answers a list, in pages when a limit is asked for. A continue token is the version and
// the next pod.
func (s *Server) serveList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	version, _ := s.now()
	first := 0
	if token := q.Get("continue"); token != "" {
		at, next, _ := strings.Cut(token, ".")
		var err error
		if version, err = strconv.ParseInt(at, 10, 64); err == nil {
			first, err = strconv.Atoi(next)
		}
		if err != nil {
			http.Error(w, "continue token: "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	end := int(s.pods)
	if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 {
		end = min(end, first+limit)
	}
	more := ""
	if end < int(s.pods) {
		more = fmt.Sprintf(`,"continue":"%d.%d","remainingItemCount":%d`, version, end, int(s.pods)-end)
	}
	buf := fmt.Appendf(nil, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[`, version, more)
	for pod := first; pod < end; pod++ {
		if pod > first {
			buf = append(buf, ',')
		}
		buf = s.item.append(buf, pod, s.versionOf(pod, version))
		if len(buf) > chunk {
			if _, err := w.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
	}
	_, _ = w.Write(append(buf, "]}\n"...))
}
