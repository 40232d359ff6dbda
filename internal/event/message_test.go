package event_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/kubebridge/bridge/internal/event"
)

// specified is a case of the specification: a message, and the event that it is.
type specified struct {
	name    string
	message *event.Message
	want    map[string]string // attributes
	data    string
	// unread is why the bridge does not take the event: its own have data in JSON only.
	unread string
	// request is the message as a request of HTTP; "" for none.
	request string
	// sdk are the attributes for the SDK, where it reads the request otherwise.
	sdk map[string]string
}

// Attributes of the examples in the specification.
var (
	someEvent = map[string]string{
		"specversion": "1.0", "type": "com.example.someevent", "time": "2018-04-05T03:56:24Z",
		"id": "1234-1234-1234", "source": "/mycontext/subcontext", "datacontenttype": "application/json",
	}
	formatEvent = map[string]string{
		"specversion": "1.0", "type": "com.example.someevent", "time": "2018-04-05T17:31:00Z",
		"source": "/mycontext", "comexampleextension1": "value", "comexampleothervalue": "5",
	}
)

const someData = `{"message": "Hello World!"}`

// with returns attributes with others in their place. "" takes one away.
func with(attributes map[string]string, pairs ...string) map[string]string {
	all := maps.Clone(attributes)
	for i := 0; i < len(pairs); i += 2 {
		if all[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
			delete(all, pairs[i])
		}
	}
	return all
}

// natsOf and kafkaOf write attributes as the examples of the bindings do.
func natsOf(attributes map[string]string, data string) *event.Message {
	header := map[string][]string{"Nats-Msg-Id": {"1"}}
	for name, value := range attributes {
		header["ce-"+name] = []string{value}
	}
	return new(event.Message).ReadNATS(header, []byte(data))
}

func kafkaOf(attributes map[string]string, data string) *event.Message {
	return new(event.Message).ReadKafka(func(yield func(string, []byte) bool) {
		for name, value := range attributes {
			if name = "ce_" + name; name == "ce_datacontenttype" {
				name = "content-type"
			}
			if !yield(name, []byte(value)) {
				return
			}
		}
	}, []byte(data))
}

// specifiedCases are those of cloudevents/conformance, and the examples in the specification of the
// JSON format and of the bindings.
func specifiedCases() (all []specified) {
	document := `{"specversion":"1.0","type":"com.example.someevent","time":"2018-04-05T03:56:24Z",` +
		`"id":"1234-1234-1234","source":"/mycontext/subcontext","datacontenttype":"application/json",` +
		`"data":` + someData + `}`
	for _, media := range []string{"application/json", "application/json; charset=utf-8"} {
		want := with(someEvent, "datacontenttype", media)
		all = append(all,
			specified{name: "Kafka, binary, " + media, message: kafkaOf(want, someData), want: want, data: someData},
			specified{name: "NATS, binary, " + media, message: natsOf(want, someData), want: want, data: someData},
			specifiedRequest("binary, "+media, binaryRequest(want, someData), want))
	}
	for _, media := range []string{"application/cloudevents+json", "application/cloudevents+json; charset=utf-8"} {
		all = append(all,
			specified{name: "Kafka, structured, " + media, message: kafkaOf(map[string]string{"datacontenttype": media}, document), want: someEvent, data: someData},
			specified{name: "NATS, structured, " + media, message: new(event.Message).ReadNATS(map[string][]string{"Content-Type": {media}}, []byte(document)), want: someEvent, data: someData},
			specifiedRequest("structured, "+media, requestText("PUT", document, "Content-Type: "+media), someEvent))
	}
	all = append(all, specifiedRequest("batched", requestText("PUT", "["+document+"]",
		"Content-Type: application/cloudevents-batch+json; charset=utf-8"), someEvent))
	json := func(name, id, members, data, unread string, pairs ...string) {
		text := `{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"` + id + `",` +
			`"time":"2018-04-05T17:31:00Z","comexampleextension1":"value","comexampleothervalue":5,"unsetextension":null,` + members + `}`
		all = append(all, specified{
			name: "JSON, " + name, message: new(event.Message).ReadDocument([]byte(text)),
			want: with(formatEvent, append(pairs, "id", id)...), data: data, unread: unread,
		})
	}
	json("binary data", "A234-1234-1234", `"datacontenttype":"application/vnd.apache.thrift.binary","data_base64":"AAEC/w=="`,
		"\x00\x01\x02\xff", "its data is no JSON", "datacontenttype", "application/vnd.apache.thrift.binary")
	json("XML as a text", "B234-1234-1234", `"datacontenttype":"application/xml","data":"<much wow=\"xml\"/>"`,
		`<much wow="xml"/>`, "its data is no JSON", "datacontenttype", "application/xml")
	json("an object", "C234-1234-1234", `"subject":null,"datacontenttype":"application/json","data":{"appinfoA":"abc","appinfoB":123,"appinfoC":true}`,
		`{"appinfoA":"abc","appinfoB":123,"appinfoC":true}`, "", "datacontenttype", "application/json")
	json("a number", "C234-1234-1234", `"datacontenttype":"application/json","data":1.5`, "1.5", "", "datacontenttype", "application/json")
	json("an object whose media type ends with +json", "C234-1234-1234", `"datacontenttype":"application/merge-patch+json","data":{"a":null}`,
		`{"a":null}`, "", "datacontenttype", "application/merge-patch+json")
	json("a text whose media type ends with +json", "C234-1234-1234", `"datacontenttype":"application/merge-patch+json","data":"{}"`,
		`"{}"`, "", "datacontenttype", "application/merge-patch+json")
	json("a text without a media type", "D234-1234-1234", `"data":"I'm just a string"`, `"I'm just a string"`, "")
	json("base64 without a media type", "D234-1234-1234", `"data_base64":"eyAieHl6IjogMTIzIH0="`, `{ "xyz": 123 }`, "")
	for _, c := range []struct{ encoded, value string }{
		{"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"},
		{"Euro%20%e2%82%ac", "Euro €"},
		{"%45uro", "Euro"},
		{"a b", "a b"},
		{`"say \"50\" \\ or"`, `say "50" \ or`},
		{"100%2525", "100%25"},
	} {
		want, encoded := with(someEvent, "comexample", c.value), with(someEvent, "comexample", c.encoded)
		posted := specifiedRequest("the header "+c.encoded, binaryRequest(encoded, someData), want)
		posted.sdk = encoded // its binding of HTTP does not decode headers
		all = append(all, posted, specified{
			name: "NATS, the header " + c.encoded, message: natsOf(encoded, someData), want: want, data: someData,
		})
	}
	return all
}

// sdkAttributes are those of an event as the SDK has it.
func sdkAttributes(t *testing.T, e *cloudevents.Event) map[string]string {
	t.Helper()
	all := map[string]string{}
	put := func(name string, value any) {
		text, err := types.Format(value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = text
	}
	for _, a := range spec.V1.Attributes() {
		if value := a.Get(e.Context); value != nil {
			put(a.Name(), value)
		}
	}
	for name, value := range e.Extensions() {
		put(name, value)
	}
	return all
}

// requireEvent compares an event of the SDK.
func requireEvent(t *testing.T, got *cloudevents.Event, want map[string]string, data string) {
	t.Helper()
	if attributes := sdkAttributes(t, got); !maps.Equal(attributes, want) {
		t.Errorf("attributes\n%v\nwant\n%v", attributes, want)
	}
	if string(got.Data()) != data {
		t.Errorf("data %q, want %q", got.Data(), data)
	}
}

// Each case is the same event for the SDK, through the bridge's bindings, for the bridge, and again
// for the SDK when the bridge has written it in each form.
func TestSpecification(t *testing.T) {
	for _, c := range specifiedCases() {
		t.Run(c.name, func(t *testing.T) {
			e, err := c.message.CloudEvent()
			if err != nil {
				t.Fatal(err)
			}
			requireEvent(t, e, c.want, c.data)
			ours, err := c.message.Event()
			if c.unread != "" {
				if err == nil || err.Error() != c.unread {
					t.Errorf("error %v, want %q", err, c.unread)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := with(c.want)
			if want["datacontenttype"] == "" {
				want["datacontenttype"] = event.ContentType // what is implied is written
			}
			for form, message := range writtenForms(&ours) {
				e, err := message.CloudEvent()
				if err != nil {
					t.Fatalf("%s: %v", form, err)
				}
				t.Run(form, func(t *testing.T) { requireEvent(t, e, want, c.data) })
			}
		})
	}
}

// writtenForms are an event as the bridge's encoders write it.
func writtenForms(e *event.Event) map[string]*event.Message {
	_, attributes := attributes(e)
	encoded := map[string]string{}
	for name, value := range attributes {
		encoded[name] = event.HeaderValue(value)
	}
	return map[string]*event.Message{
		"written as a document":        new(event.Message).ReadDocument(event.AppendStructured(nil, e)),
		"written as a message of NATS": natsOf(encoded, string(e.Data)),
		"written as a record of Kafka": kafkaOf(attributes, string(e.Data)),
	}
}

// What the specification does not allow is no event, and the reason is given.
func TestNoCloudEvent(t *testing.T) {
	structured := func(document string) *event.Message { return new(event.Message).ReadDocument([]byte(document)) }
	for name, c := range map[string]struct {
		message *event.Message
		want    string
	}{
		"a message without specversion":        {natsOf(with(someEvent, "specversion", ""), someData), "unknown Message encoding"},
		"another version":                      {kafkaOf(with(someEvent, "specversion", "0.3"), someData), "unknown Message encoding"},
		"another version in a document":        {structured(`{"specversion":"0.3","id":"1","source":"s","type":"t"}`), "its specversion is 0.3"},
		"no id":                                {natsOf(with(someEvent, "id", ""), someData), "id: MUST be a non-empty string"},
		"no source":                            {kafkaOf(with(someEvent, "source", ""), someData), "source: REQUIRED"},
		"a source that is no URI reference":    {natsOf(with(someEvent, "source", "%25zz"), someData), "invalid URL escape"},
		"a time that is none":                  {natsOf(with(someEvent, "time", "now"), someData), "invalid value for time"},
		"a media type that is none":            {kafkaOf(with(someEvent, "datacontenttype", "json; ;"), someData), "media type"},
		"a name that is none":                  {natsOf(with(someEvent, "my-team", "a"), someData), "attribute my-team"},
		"percent-encoding of an overlong byte": {natsOf(with(someEvent, "subject", "%C0%A0"), someData), "header ce-subject: its percent-encoding is not of UTF-8"},
		"percent-encoding that is none":        {natsOf(with(someEvent, "subject", "%zz"), someData), "header ce-subject: invalid URL escape"},
		"an attribute that is an object":       {structured(`{"specversion":"1.0","id":"1","source":"s","type":"t","a":{}}`), "invalid CloudEvents value"},
		"a document of a batch":                {structured(`[{"specversion":"1.0","id":"1","source":"s","type":"t"}]`), ""},
		"a batch":                              {kafkaOf(map[string]string{"datacontenttype": "application/cloudevents-batch+json"}, "[]"), "unknown Message encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := c.message.Event(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("event %+v, error %v, want %q", e, err, c.want)
			}
		})
	}
	t.Run("of two headers for one attribute it is always the same one", func(t *testing.T) {
		for range 50 {
			header := map[string][]string{"Ce-Id": {"other"}}
			for name, value := range someEvent {
				header["ce-"+name] = []string{value}
			}
			if e, err := new(event.Message).ReadNATS(header, nil).Event(); err != nil || e.ID != someEvent["id"] {
				t.Fatalf("id %q, %v", e.ID, err)
			}
		}
	})
}

// The bindings keep what binding.Message promises: a message can be read twice, and in its own mode
// only.
func TestMessage(t *testing.T) {
	m := natsOf(someEvent, someData)
	for range 2 {
		if e, err := m.CloudEvent(); err != nil || e.ID() != someEvent["id"] {
			t.Errorf("event %v, %v", e, err)
		}
	}
	if m.ReadEncoding() != binding.EncodingBinary || !errors.Is(m.ReadStructured(t.Context(), nil), binding.ErrNotStructured) {
		t.Error("a message in binary mode can be read as a structured one")
	}
	if attribute, value := m.GetAttribute(spec.ID); attribute.Name() != "id" || value != someEvent["id"] {
		t.Errorf("attribute %v, %v", attribute, value)
	}
	if m.GetExtension("missing") != nil {
		t.Error("an extension that is not there")
	}
	s := new(event.Message).ReadDocument([]byte("{}"))
	if s.ReadEncoding() != binding.EncodingStructured || !errors.Is(s.ReadBinary(t.Context(), nil), binding.ErrNotBinary) {
		t.Error("a structured message can be read in binary mode")
	}
}

// An event that goes to the SDK and back is the same.
func TestCloudEvent(t *testing.T) {
	for name, change := range map[string]func(*event.Event){
		"full":         func(*event.Event) {},
		"without data": func(e *event.Event) { e.Data = nil },
		"a patch":      func(e *event.Event) { e.Data, e.DataType = []byte(`{"a" : null}`), event.MergePatchContentType },
	} {
		t.Run(name, func(t *testing.T) {
			e := full()
			change(e)
			sdk, err := e.CloudEvent()
			if err != nil {
				t.Fatal(err)
			}
			_, want := attributes(e)
			requireEvent(t, sdk, want, string(e.Data))
			written, err := event.MarshalCloudEvent(sdk)
			if err != nil {
				t.Fatal(err)
			}
			again, err := event.ParseStructured(written)
			if err != nil {
				t.Fatalf("%s: %v", written, err)
			}
			if _, got := attributes(&again); !maps.Equal(got, want) {
				t.Errorf("attributes\n%v\nwant\n%v", got, want)
			}
			if !bytes.Equal(again.Data, e.Data) {
				t.Errorf("data %q, want %q", again.Data, e.Data)
			}
		})
	}
}
