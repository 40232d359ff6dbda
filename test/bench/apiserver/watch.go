package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// chunk is how many bytes are written at once.
const chunk = 256 << 10

// watcher writes the events of one watch.
type watcher struct {
	*Server
	w   http.ResponseWriter
	buf []byte
	err error
}

// serveWatch sends the initial events when they are asked for, and then every version after the
// given one, until the request ends or times out.
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	timeout, err := strconv.Atoi(q.Get("timeoutSeconds"))
	if err != nil || timeout <= 0 {
		timeout = 1800
	}
	end := time.NewTimer(time.Duration(timeout) * time.Second)
	defer end.Stop()
	bookmark := time.NewTicker(10 * time.Second)
	defer bookmark.Stop()
	out := &watcher{Server: s, w: w}
	sent, _ := s.now()
	if q.Get("sendInitialEvents") == "true" {
		out.initial(sent)
	} else if sent, err = strconv.ParseInt(q.Get("resourceVersion"), 10, 64); err != nil {
		http.Error(w, "resourceVersion: "+err.Error(), http.StatusBadRequest)
		return
	}
	out.flush()
	for out.err == nil {
		version, changed := s.now()
		for ; sent < version && out.err == nil; sent++ {
			out.event("MODIFIED", s.podAt(sent+1), sent+1)
		}
		out.flush()
		select {
		case <-changed:
		case <-bookmark.C:
			out.bookmark(sent, "")
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// initial sends every pod, and the bookmark that ends them.
func (o *watcher) initial(version int64) {
	for pod := range int(o.pods) {
		o.event("ADDED", pod, o.versionOf(pod, version))
		if o.err != nil {
			return
		}
	}
	o.bookmark(version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
}

func (o *watcher) event(kind string, pod int, version int64) {
	o.buf = append(append(o.buf, `{"type":"`...), kind...)
	o.buf = append(o.buf, `","object":`...)
	o.buf = append(o.object.append(o.buf, pod, version), "}\n"...)
	o.frames.Add(1)
	if len(o.buf) > chunk {
		o.flush()
	}
}

func (o *watcher) bookmark(version int64, annotations string) {
	o.buf = fmt.Appendf(o.buf, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}}`+"\n", version, annotations)
	o.flush()
}

func (o *watcher) flush() {
	if o.err == nil && len(o.buf) > 0 {
		_, o.err = o.w.Write(o.buf)
	}
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
	o.buf = o.buf[:0]
}
