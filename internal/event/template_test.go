package event_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

// The defaults of the sinks.
const (
	defaultSubject = "k8s.{cluster}.{group}.{version}.{resource}.{namespace}.{name}.{op}"
	defaultTopic   = "k8s.{cluster}.{resource}"
)

func mustParse(t testing.TB, text string) *event.Template {
	t.Helper()
	template, err := event.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func subject(t testing.TB, e *event.Event) string {
	t.Helper()
	return string(mustParse(t, defaultSubject).Append(nil, e, event.AppendSubjectToken))
}

func topic(t testing.TB, e *event.Event) string {
	t.Helper()
	return string(mustParse(t, defaultTopic).Append(nil, e, event.AppendTopicPart))
}

func TestDefaultSubjects(t *testing.T) {
	for name, test := range map[string]struct {
		event event.Event
		want  string
	}{
		"namespaced": {
			event.Event{Routing: event.Routing{Cluster: "prod", Group: "apps", Version: "v1"}, ObjectAttributes: event.ObjectAttributes{Resource: "deployments", Namespace: "shop", Name: "web"}, Op: event.Updated},
			"k8s.prod.apps.v1.deployments.shop.web.updated",
		},
		"cluster-scoped, of the core group": {
			event.Event{Routing: event.Routing{Cluster: "prod", Version: "v1"}, ObjectAttributes: event.ObjectAttributes{Resource: "nodes", Name: "n1.example.com"}, Op: event.Added},
			"k8s.prod.core.v1.nodes.-.n1_example_com.added",
		},
		"about an informer": {
			event.Event{Routing: event.Routing{Cluster: "prod", Group: "example.com", Version: "v1"}, ObjectAttributes: event.ObjectAttributes{Resource: "widgets"}, Op: event.Gap},
			"k8s.prod.example_com.v1.widgets.-.-.gap",
		},
		"no cluster": {
			event.Event{Routing: event.Routing{Version: "v1"}, ObjectAttributes: event.ObjectAttributes{Resource: "pods", Namespace: "a", Name: "b"}, Op: event.Deleted},
			"k8s.-.core.v1.pods.a.b.deleted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := subject(t, &test.event); got != test.want {
				t.Errorf("subject %q, want %q", got, test.want)
			}
		})
	}
}

// FuzzSubjects takes a subject apart again: what can be read back can't meet. An API group named
// "core" is out, since that is how the group without a name is written; only an aggregated API
// server could serve one.
func FuzzSubjects(f *testing.F) {
	f.Add("prod", "apps", "v1", "deployments", "shop", "web")
	f.Add("", "", "v1", "nodes", "", "n1.example.com")
	f.Add("a.b", "a_b", "v1", "x", "-", "%2D")
	f.Add("arn:aws:eks:eu-1:1:cluster/x", "*.>", "é", "\x00", " ", "_")
	f.Fuzz(func(t *testing.T, cluster, group, version, resource, namespace, name string) {
		if group == "core" {
			t.Skip()
		}
		e := event.Event{Routing: event.Routing{Cluster: cluster, Group: group, Version: version}, ObjectAttributes: event.ObjectAttributes{Resource: resource, Namespace: namespace, Name: name}, Op: event.Added}
		text := subject(t, &e)
		tokens := strings.Split(text, ".")
		want := []string{"k8s", cluster, cmp.Or(group, "core"), version, resource, namespace, name, "added"}
		if len(tokens) != len(want) {
			t.Fatalf("%q has %d tokens, want %d", text, len(tokens), len(want))
		}
		for i, token := range tokens {
			checkToken(t, token)
			if got := decodeToken(t, token); got != want[i] {
				t.Errorf("token %d of %q reads as %q, want %q", i, text, got, want[i])
			}
		}
	})
}

// FuzzTopics compares two: topics differ where cluster or resource do. A resource's name holds no
// dot, so the last one ends the cluster.
func FuzzTopics(f *testing.F) {
	f.Add("a.b", "c", "a", "b.c")
	f.Add("", "pods", "-", "pods")
	f.Add("a_2Eb", "pods", "a.b", "pods")
	f.Add("a", "_", "a", "_5F")
	f.Fuzz(func(t *testing.T, cluster1, resource1, cluster2, resource2 string) {
		if strings.Contains(resource1+resource2, ".") {
			t.Skip()
		}
		one, two := topic(t, &event.Event{Routing: event.Routing{Cluster: cluster1}, ObjectAttributes: event.ObjectAttributes{Resource: resource1}}), topic(t, &event.Event{Routing: event.Routing{Cluster: cluster2}, ObjectAttributes: event.ObjectAttributes{Resource: resource2}})
		same := cluster1 == cluster2 && resource1 == resource2
		if (one == two) != same {
			t.Errorf("topics %q of (%q, %q) and %q of (%q, %q)", one, cluster1, resource1, two, cluster2, resource2)
		}
		if !validTopic.MatchString(one) {
			t.Errorf("%q is not a valid topic", one)
		}
	})
}

// Default topics fit for names of clusters up to 181 characters.
// The longest resource is a label of 63 characters.
func TestDefaultTopicLength(t *testing.T) {
	e := event.Event{Routing: event.Routing{Cluster: strings.Repeat("c", 181)}, ObjectAttributes: event.ObjectAttributes{Resource: strings.Repeat("r", 63)}}
	if got := len(topic(t, &e)); got != 249 {
		t.Errorf("the longest topic has %d characters, want the 249 that Kafka takes", got)
	}
}

// Errors of templates report what is wrong.
func TestTemplateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "empty",
		"k8s.{cluster":     "{ without }",
		"k8s.cluster}":     "} without {",
		"k8s.{cluster}}":   "} without {",
		"k8s.{}":           "no field {}",
		"k8s.{{cluster}}":  "no field {{cluster}",
		"k8s.{Cluster}":    "there are {changed}, {cluster}, {group}",
		"k8s.{name}.{nope": "{ without }",
		"{nope}":           "{name}, {op}, {resource}, {type}, {uid}, {version}",
	} {
		_, err := event.ParseTemplate(text)
		if err == nil || !strings.Contains(err.Error(), want) || text != "" && !strings.Contains(err.Error(), text) {
			t.Errorf("template %q: %v, want an error with %q that shows the template", text, err, want)
		}
	}
}

// A template may name every field.
func TestTemplateFields(t *testing.T) {
	e := event.Event{
		Routing: event.Routing{Cluster: "cl", Group: "gr", Version: "v1"}, Informer: "inf", ObjectAttributes: event.ObjectAttributes{
			Resource: "res", Kind: "Kind", Namespace: "ns", Name: "na", UID: "ui", Changed: "spec,labels",
		},
		Op: event.Added, Type: "a.type",
	}
	text := "x" + strings.Join(event.TemplateFields(), ",") + "y"
	template := mustParse(t, text)
	if got := string(template.Append([]byte(">"), &e, event.AppendSubjectToken)); got != ">xspec,labels,cl,gr,inf,Kind,ns,na,added,res,a_type,ui,v1y" {
		t.Errorf("every field: %q", got)
	}
	if template.String() != text {
		t.Errorf("String = %q, want the text as written", template)
	}
}

// A pattern keeps what is known.
func TestPatternKeeps(t *testing.T) {
	known := map[string]string{"cluster": "prod.eu", "op": ""}
	if got := mustParse(t, defaultSubject).Pattern("*", known, event.AppendSubjectToken); got != "k8s.prod_eu.*.*.*.*.*.-" {
		t.Errorf("pattern %q", got)
	}
}
