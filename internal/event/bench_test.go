package event_test

import (
	"bytes"
	"slices"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/kubebridge/bridge/internal/event"
)

// sample is an event with a payload of 6 KB, the size of a pod.
func sample() *event.Event {
	e := full()
	e.Data = append(append([]byte(`{"x":"`), bytes.Repeat([]byte("y"), 6000)...), `"}`...)
	return e
}

// BenchmarkFlat is the cost of one flat record, beside that of a structured event. The payload has
// the size of a pod, and a quote every nine bytes.
func BenchmarkFlat(b *testing.B) {
	e := full()
	e.Data = slices.Concat([]byte(`{"list":[1`),
		bytes.Repeat([]byte(`,{"name":"web-5d4f8","value":"a longer text","ready":true,"count":12}`), 85), []byte("]}"))
	for name, encode := range map[string]func([]byte, *event.Event) []byte{
		"flat": event.AppendFlat, "structured": event.AppendStructured,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf = encode(buf[:0], e)
			}
		})
	}
}

// BenchmarkStructured is the cost of one structured event, by us and by the SDK on its shortest
// way.
func BenchmarkStructured(b *testing.B) {
	e := sample()
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = event.AppendStructured(buf[:0], e)
		}
	})
	b.Run("sdk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := cloudevents.New()
			e.Each(func(name, value string) {
				switch name {
				case "id":
					c.SetID(value)
				case "source":
					c.SetSource(value)
				case "type":
					c.SetType(value)
				case "subject":
					c.SetSubject(value)
				case "time":
					c.SetTime(e.Time)
				case "specversion", "datacontenttype":
				default:
					c.SetExtension(name, value)
				}
			})
			c.SetDataContentType(event.ContentType)
			c.DataEncoded = e.Data
			if _, err := c.MarshalJSON(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSubject(b *testing.B) {
	b.ReportAllocs()
	e, template := sample(), mustParse(b, defaultSubject)
	var buf []byte
	for b.Loop() {
		buf = template.Append(buf[:0], e, event.AppendSubjectToken)
	}
}

func BenchmarkTopic(b *testing.B) {
	b.ReportAllocs()
	e, template := sample(), mustParse(b, defaultTopic)
	var buf []byte
	for b.Loop() {
		buf = template.Append(buf[:0], e, event.AppendTopicPart)
	}
}

// BenchmarkRead is the cost of reading one event, by us and by the SDK.
func BenchmarkRead(b *testing.B) {
	e := sample()
	document := event.AppendStructured(nil, e)
	header := map[string][]string{}
	e.Each(func(name, value string) { header["ce-"+name] = []string{event.HeaderValue(value)} })
	for form, message := range map[string]func(*event.Message) *event.Message{
		"binary":     func(m *event.Message) *event.Message { return m.ReadNATS(header, e.Data) },
		"structured": func(m *event.Message) *event.Message { return m.ReadDocument(document) },
	} {
		for by, read := range map[string]func(*event.Message) (event.Event, error){
			"ours": (*event.Message).Decode, "sdk": (*event.Message).Event,
		} {
			b.Run(form+"/"+by, func(b *testing.B) {
				b.ReportAllocs()
				var m event.Message
				for b.Loop() {
					if _, err := read(message(&m)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
