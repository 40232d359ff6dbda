package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/client"
)

// read gives the next n events behind a position, in short, and the position behind the last.
func read(t *testing.T, b *broker, from client.Position, n int) (lines []string, last client.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for e, err := range b.source().Events(ctx, from) {
		must(t, err)
		line := e.Type()[len("dev.kubebridge."):]
		if e.AboutObject() {
			line = e.Attribute("name") + " " + e.Attribute("resourceversion")
			if e.IsDelete() {
				line += " deleted"
			}
		}
		lines, last = append(lines, line), e.Position
		if len(lines) == n {
			break
		}
	}
	return lines, last
}

// wantRead compares what was read. Of topics the order of different partitions is open, and each
// partition has a copy of what is said about an informer.
func wantRead(t *testing.T, b *broker, got []string, want ...string) {
	t.Helper()
	if b.kafka != nil {
		for _, line := range slices.Clone(want) {
			if strings.HasPrefix(line, "informer.") {
				want = append(want, line)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		t.Errorf("read %q\nwant %q", got, want)
	}
}

func TestEvents(t *testing.T) {
	for _, kind := range []string{"stream", "topics"} {
		t.Run(kind, func(t *testing.T) { events(t, newBroker(t, kind)) })
	}
}

func events(t *testing.T, b *broker) {
	b.put("a")
	b.put("b")
	b.synced(2)
	b.put("a")
	b.putAgain("a") // after an outage
	b.about("gap", `{"reason":"expired"}`)
	b.delete("b")
	n := 6
	if b.kafka != nil {
		n += 2 * (partitions - 1) // copies
	}
	got, last := read(t, b, "", n)
	wantRead(t, b, got, "a 1", "b 2", "informer.synced", "a 4", "informer.gap", "b 6 deleted")

	t.Run("a position survives a restart", func(t *testing.T) {
		b.put("c")
		got, _ := read(t, b, last, 1)
		wantRead(t, b, got, "c 7")
	})
	t.Run("a repeat of what came before the position is dropped", func(t *testing.T) {
		b.version = 4
		b.putAgain("a")
		b.version = 7
		b.put("d")
		got, _ := read(t, b, last, 2)
		wantRead(t, b, got, "c 7", "d 8")
	})
	t.Run("what the source has dropped is reported", func(t *testing.T) {
		b.put("c")
		b.put("d")
		b.put("c")
		b.put("d")
		b.forget()
		got, _ := read(t, b, last, 1)
		wantRead(t, b, got, "client.lost")
		if b.kafka == nil {
			got, _ = read(t, b, last, 2)
			wantRead(t, b, got, "client.lost", "d 12")
			return
		}
		got, _ = read(t, b, last, 3) // each partition has kept one
		wantRead(t, b, got, "client.lost", "c 11", "d 12")
	})
	t.Run("a source that was recreated is reported", func(t *testing.T) {
		b.drop()
		b.create()
		b.put("e")
		got, _ := read(t, b, last, 2)
		wantRead(t, b, got, "client.lost", "e 13")
	})
	t.Run("a position that is none is an error", func(t *testing.T) {
		for _, err := range b.source().Events(t.Context(), "yesterday") {
			if err == nil {
				t.Error("it was taken")
			}
		}
	})
}

// Structured events have their attributes in the value.
func TestStructuredEvents(t *testing.T) {
	b := newBroker(t, "stream")
	_, err := b.js.Publish(t.Context(), "k8s.test.core.v1.pods.shop.a.added", nil)
	must(t, err) // no event
	m := `{"specversion":"1.0","type":"dev.kubebridge.resource.added","id":"uid-a/1","source":"/clusters/x",` +
		`"apiversion":"v1","resource":"pods","namespace":"shop","name":"a","resourceversion":"1","initial":true,` +
		`"data":` + podJSON("a", 1) + `}`
	publishStructured(t, b, m)
	for e, err := range b.source().Events(t.Context(), "") {
		must(t, err)
		if string(e.Data()) != podJSON("a", 1) || e.Attribute("initial") != "true" ||
			e.Resource() != pods || e.Type() != client.TypeAdded {
			t.Errorf("got %+v", e)
		}
		break
	}
}

// A flat record is the same event: what it has only as a column is no attribute.
func TestFlatEvents(t *testing.T) {
	b := newBroker(t, "stream")
	publish := func(text string) {
		t.Helper()
		m := nats.NewMsg("k8s.test.core.v1.pods.shop.a.added")
		m.Header["Content-Type"] = []string{"application/vnd.kubebridge.flat+json"}
		m.Data = []byte(text)
		_, err := b.js.PublishMsg(t.Context(), m)
		must(t, err)
	}
	quoted, err := json.Marshal(podJSON("a", 1))
	must(t, err)
	const record = `{"cluster":"x","op":"added","apigroup":"","type":"dev.kubebridge.resource.added","id":"uid-a/1",` +
		`"source":"/clusters/x","apiversion":"v1","resource":"pods","namespace":"shop","name":"a","resourceversion":"1",` +
		`"manager":"","notbefore":null,"initial":true,"inferred":false,"team":"false","data":`
	publish(record + string(quoted) + "}")
	publish(strings.Replace(record, "uid-a/1", "uid-a/2", 1) + "{}}")
	read := 0
	for e, err := range b.source().Events(t.Context(), "") {
		if read++; read == 2 {
			if err == nil || !strings.Contains(err.Error(), "column data") {
				t.Errorf("data that is no text is read as %v, %v", e, err)
			}
			break
		}
		must(t, err)
		for name, want := range map[string]string{
			"type": client.TypeAdded, "id": "uid-a/1", "source": "/clusters/x", "apiversion": "v1", "name": "a",
			"initial": "true", "team": "false", "manager": "", "inferred": "", "cluster": "", "op": "", "apigroup": "",
		} {
			if got := e.Attribute(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if string(e.Data()) != podJSON("a", 1) {
			t.Errorf("data is %s", e.Data())
		}
	}
}

func ExampleSource_Events() {
	// js is a jetstream.JetStream, and load and save keep a position with what the events did.
	handle := func(js jetstream.JetStream, load func() client.Position, save func(client.Position)) error {
		for e, err := range client.Stream(js, "K8S").Events(context.Background(), load()) {
			if err != nil {
				return err
			}
			switch {
			case e.Type() == client.TypeGap, e.Type() == client.TypeLost:
				fmt.Println("versions are missing:", string(e.Data()))
			case e.IsDelete():
				fmt.Println(e.Resource(), e.Attribute("name"), "is gone")
			case e.AboutObject():
				fmt.Println(e.Resource(), e.Attribute("name"), "is in version", e.Attribute("resourceversion"))
			}
			save(e.Position)
		}
		return nil
	}
	_ = handle
}

func publishStructured(t *testing.T, b *broker, text string) {
	t.Helper()
	m := nats.NewMsg("k8s.test.core.v1.pods.shop.a.added")
	m.Header["Content-Type"] = []string{"application/cloudevents+json"}
	m.Data = []byte(text)
	_, err := b.js.PublishMsg(t.Context(), m)
	must(t, err)
}
