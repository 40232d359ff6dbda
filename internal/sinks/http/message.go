package http

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// message is an encoded event. It shares no memory with the event: a client may still write it when
// the answer is there.
type message struct {
	header http.Header
	body   []byte
}

// encode makes the message of an event. A panic refuses the event.
func encode(e *event.Event, encoding string) (m message, err error) {
	defer sinks.Recover(&err)
	m.header = http.Header{}
	if encoding == Structured {
		m.header["Content-Type"] = []string{event.StructuredContentType}
		m.body = event.AppendStructured(nil, e)
		return m, nil
	}
	e.Each(func(name, value string) {
		if name == "datacontenttype" {
			m.header["Content-Type"] = []string{value}
			return
		}
		m.header[headerName(name)] = []string{strings.Clone(event.HeaderValue(value))}
	})
	m.body = bytes.Clone(e.Data)
	return m, nil
}

// headerName is the header of an attribute, in the form that Go's client writes: Ce-Id.
func headerName(attribute string) string {
	return "Ce-" + strings.ToUpper(attribute[:1]) + attribute[1:]
}
