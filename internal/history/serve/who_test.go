package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/testkit"
)

// made returns a change with the event that says who made it.
func made(e event.Event, data string) []event.Event {
	who := e
	who.ID, who.Type, who.Op = e.ID+event.AttributedSuffix, event.TypeAttributed, event.Attributed
	who.Data = fmt.Appendf(nil, `{"change":%q,%s}`, e.ID, data)
	return []event.Event{e, who}
}

// Objects and tables name the user who made a version, if that is asked for.
func TestWho(t *testing.T) {
	t.Parallel()
	events := inventory("pods/shop/by-alice", "pods/shop/forged", "pods/shop/plain", "secrets/shop/by-bob")
	events[0].Data = []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"by-alice","namespace":"shop","annotations":{"team":"web"}},"spec":{}}`)
	events[1].Data = []byte(`{"metadata":{"name":"forged","namespace":"shop","annotations":{"` + serve.ActorAnnotation + `":"eve"}}}`)
	events[3].Data = []byte(`{"metadata":{"name":"by-bob","namespace":"shop"},"data":{"pin":"redacted:0123"}}`)
	all := slices.Concat(
		made(events[0], `"user":"alice","impersonator":"root","groups":["admins"],"grade":"exact"`), made(events[1], `"unknown":"no request"`),
		events[2:3], made(events[3], `"user":"bob","grade":"exact"`))
	const alice, bob = "alice (impersonated by root)", "bob"

	for name, cfg := range map[string]serve.Config{"at a time": {At: query.Point{At: inventoryTime}}, "live": {Live: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := newSite(t, all, cfg)
			cfg.Who = true
			s := newSite(t, all, cfg)
			list, err := s.clients("application/json", token).CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
			testkit.OK(t, err)
			users := map[string]string{}
			for i := range list.Items {
				users[list.Items[i].Name] = list.Items[i].Annotations[serve.ActorAnnotation]
			}
			if len(users) != 3 || users["by-alice"] != alice || users["forged"] != "" || users["plain"] != "" {
				t.Error(users)
			}
			if first := list.Items[0]; first.Annotations["team"] != "web" || first.Spec.RestartPolicy != "" {
				t.Errorf("%+v", first)
			}
			secret, err := s.clients("application/json", token).CoreV1().Secrets("shop").Get(t.Context(), "by-bob", metav1.GetOptions{})
			testkit.OK(t, err)
			if secret.Annotations[serve.ActorAnnotation] != bob || string(secret.Data["pin"]) != "redacted:0123" {
				t.Errorf("%+v", secret)
			}
			meta, err := metadata.NewForConfig(s.config())
			testkit.OK(t, err)
			short, err := meta.Resource(pods).Namespace("shop").Get(t.Context(), "by-alice", metav1.GetOptions{})
			testkit.OK(t, err)
			if short.Annotations[serve.ActorAnnotation] != alice {
				t.Errorf("%+v", short)
			}

			table := func(s *site) (table metav1.Table) {
				code, body := s.request("GET", "/api/v1/namespaces/shop/pods", map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
				if code != 200 {
					t.Fatal(body)
				}
				testkit.OK(t, json.Unmarshal([]byte(body), &table))
				return table
			}
			with, without := table(s), table(plain)
			n := len(without.ColumnDefinitions)
			if len(with.ColumnDefinitions) != n+1 || with.ColumnDefinitions[n].Name != "User" || with.ColumnDefinitions[n].Priority != 0 {
				t.Errorf("%+v", with.ColumnDefinitions)
			}
			for i, want := range []string{alice, "<unknown>", "<unknown>"} {
				if cells := with.Rows[i].Cells; len(cells) != n+1 || cells[n] != want {
					t.Errorf("%v, want %s", cells, want)
				}
			}
			if _, body := plain.request("GET", "/api/v1/namespaces/shop/pods/by-alice", nil); strings.TrimSpace(body) != string(events[0].Data) {
				t.Error("without Who an object is not as it was recorded:", body)
			}
		})
	}
}

// A watch that follows a history names the user that it has by then.
func TestWhoOfWatch(t *testing.T) {
	t.Parallel()
	events := inventory("pods/shop/first", "pods/shop/second")
	events[1].Data = []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"second","namespace":"shop"}}`)
	s := newSite(t, made(events[0], `"user":"alice","grade":"exact"`), serve.Config{Live: true, Who: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := s.clients("application/json", token).CoreV1().Pods("shop").Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
	testkit.OK(t, err)
	defer w.Stop()
	s.append(made(events[1], `"user":"bob","grade":"exact"`))
	pod, isPod := (<-w.ResultChan()).Object.(*corev1.Pod)
	if !isPod || pod.Name != "second" || pod.Annotations[serve.ActorAnnotation] != "bob" {
		t.Errorf("%+v", pod)
	}
}
