package serve

import (
	"cmp"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// form is how a client wants objects.
type form int

const (
	asObject form = iota
	asTable
	asMetadata
	asMetadataList
)

// formOf reads Accept. The first kind that is known wins, as with an API server; ok is false where
// there is none.
func formOf(r *http.Request) (f form, ok bool) {
	header := cmp.Or(r.Header.Get("Accept"), "*/*")
	for accepted := range strings.SplitSeq(header, ",") {
		media, parameters, err := mime.ParseMediaType(accepted)
		isJSON := slices.Contains([]string{"application/json", "*/*"}, media)
		if err != nil || !isJSON || parameters["as"] != "" && parameters["g"] != "meta.k8s.io" {
			continue
		}
		switch parameters["as"] {
		case "":
			return asObject, true
		case "Table":
			if parameters["v"] == "v1" {
				return asTable, true
			}
		case "PartialObjectMetadata":
			return asMetadata, true
		case "PartialObjectMetadataList":
			return asMetadataList, true
		}
	}
	return asObject, false
}

// checkTable refuses parameters of a table that there are not.
func (q *request) checkTable() error {
	var o metav1.TableOptions
	if form, _ := formOf(q.r); form != asTable {
		return nil
	}
	o.IncludeObject = metav1.IncludeObjectPolicy(q.r.URL.Query().Get("includeObject"))
	if problems := metavalidation.ValidateTableOptions(&o); len(problems) > 0 {
		return apierrors.NewBadRequest("Unable to convert to Table as requested: " + problems[0].Error())
	}
	return nil
}

// notAcceptable refuses a request for a form that no object is kept in.
func (q *request) notAcceptable() {
	q.refuse(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media "+
		"types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, "+
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
}

// largeAnswer is from which size on an API server compresses an answer, in bytes.
const largeAnswer = 128 << 10

// answerWriter collects an answer and writes it in large parts. It compresses what an API server
// compresses: an answer of more than largeAnswer for a client that accepts gzip. What is flushed
// while it is small is sent as it is: a watch is never compressed.
type answerWriter struct {
	http.ResponseWriter
	patience time.Duration // how long a client may take to read a part
	gzips    bool          // the client accepts gzip
	code     int           // 0: none was given
	buffer   *[]byte       // what was not sent yet; nil for nothing
	isSent   bool          // a part was sent
	packer   *gzip.Writer  // nil: it is not compressed
}

// answerBuffers are for answers: most watches need none most of the time.
var answerBuffers = sync.Pool{New: func() any { b := make([]byte, 0, largeAnswer+16<<10); return &b }}

// gzipWriters compress as fast as they can, as those of an API server.
var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one that it has
	return w
}}

func newAnswerWriter(w http.ResponseWriter, r *http.Request, patience time.Duration) *answerWriter {
	return &answerWriter{ResponseWriter: w, patience: patience, gzips: acceptsGzip(r)}
}

// acceptsGzip reads Accept-Encoding as an API server does: it knows no qualities.
func acceptsGzip(r *http.Request) bool {
	for token := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}

// WriteHeader implements http.ResponseWriter. The code is sent with the first part.
func (w *answerWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if w.buffer == nil {
		w.buffer = answerBuffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is in it
	}
	*w.buffer = append(*w.buffer, b...)
	if len(*w.buffer) <= largeAnswer {
		return len(b), nil
	}
	if w.gzips && !w.isSent {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
		w.packer = gzipWriters.Get().(*gzip.Writer) //nolint:forcetypeassert // the same
		w.packer.Reset(patientWriter{w})
	}
	if err := w.send(); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (w *answerWriter) send() (err error) {
	if !w.isSent && w.code > 0 {
		w.ResponseWriter.WriteHeader(w.code)
	}
	w.isSent = true
	if w.buffer == nil {
		return nil
	}
	if w.packer != nil {
		_, err = w.packer.Write(*w.buffer)
	} else {
		_, err = patientWriter{w}.Write(*w.buffer)
	}
	w.release()
	return err
}

// release gives the buffer back, unless an object of more than its size has made it large.
func (w *answerWriter) release() {
	if w.buffer != nil && cap(*w.buffer) <= 2*largeAnswer {
		*w.buffer = (*w.buffer)[:0]
		answerBuffers.Put(w.buffer)
	}
	w.buffer = nil
}

// FlushError is for http.ResponseController.
func (w *answerWriter) FlushError() error {
	err := w.send()
	if err == nil && w.packer != nil {
		err = w.packer.Flush()
	}
	return errors.Join(err, w.within(http.NewResponseController(w.ResponseWriter).Flush))
}

// discard takes back what was collected. It reports whether nothing was sent yet: another answer
// may still be given.
func (w *answerWriter) discard() bool {
	w.release()
	w.code = 0
	return !w.isSent
}

// close sends the end of an answer. One that breaks off must not be closed: the client would take
// it for complete.
func (w *answerWriter) close() {
	err := w.send()
	if w.packer != nil {
		err = errors.Join(err, w.packer.Close())
		w.packer.Reset(nil)
		gzipWriters.Put(w.packer)
		w.packer = nil
	}
	_ = err // the client has gone
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// within gives a client some time for each part of an answer: one that does not read must not keep
// the history open. A watch may be idle as long as it wants. So there is a deadline only while
// something is written: with HTTP/2 one that passes ends an idle answer too.
func (w *answerWriter) within(write func() error) error {
	c := http.NewResponseController(w.ResponseWriter)
	// A writer that has no deadlines, as in tests, does without.
	_ = c.SetWriteDeadline(time.Now().Add(w.patience))
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	return write()
}

// patientWriter writes to the client of an answer.
type patientWriter struct{ to *answerWriter }

func (w patientWriter) Write(b []byte) (n int, err error) {
	err = w.to.within(func() (err error) {
		n, err = w.to.ResponseWriter.Write(b) //nolint:gosec // JSON and YAML, with nosniff
		return err
	})
	return n, err
}
