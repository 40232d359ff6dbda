package admin

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Historian answers questions about the past. Its method may be called concurrently.
type Historian interface {
	// Ask answers a question ("versions") with a value that encodes as JSON, or with an
	// iter.Seq2[any, error]: an answer of any length, one JSON document a line, which an error
	// ends. An error that has a method HTTPStatus says how the request is answered.
	Ask(ctx context.Context, question string, q url.Values) (any, error)
}

// historyRoutes are those that show what was.
func (s *Server) historyRoutes(mux *http.ServeMux) {
	if s.config.History != nil {
		mux.Handle("GET /history/{question}", s.reader(s.history))
	}
}

// linesWrite is how long a reader may take for a piece of an answer.
const linesWrite = 30 * time.Second

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.untilStop(r.Context())
	defer cancel()
	answer, err := s.config.History.Ask(ctx, r.PathValue("question"), r.URL.Query())
	if err != nil {
		s.refuse(w, err)
		return
	}
	lines, ok := answer.(iter.Seq2[any, error])
	if !ok {
		s.json(w, http.StatusOK, answer)
		return
	}
	s.lines(w, lines)
}

// lines sends an answer as it is made. What fails in the middle of it ends it with a line that says
// so: the status was sent.
func (s *Server) lines(w http.ResponseWriter, lines iter.Seq2[any, error]) {
	stream := http.NewResponseController(w)
	if err := stream.SetReadDeadline(time.Time{}); err != nil { // at the deadline the answer ends
		s.log.Debug("the read deadline can't be lifted", "err", err)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	encoder := json.NewEncoder(w)
	for value, err := range lines {
		_ = stream.SetWriteDeadline(time.Now().Add(linesWrite)) // the server's own is for short answers
		if err != nil {
			value = map[string]string{"error": err.Error()}
		}
		if encodeErr := encoder.Encode(value); encodeErr != nil || err != nil {
			return
		}
	}
}
