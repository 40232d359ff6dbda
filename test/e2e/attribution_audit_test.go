package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/read"
)

// auditPolicy has the API server keep the answer to each write, which has the version that it made.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: Metadata
  verbs: [watch]
  omitStages: [RequestReceived, ResponseComplete]
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources: [{group: ""}, {group: apps}]
  omitStages: [RequestReceived, ResponseStarted]
- level: Metadata
  omitStages: [RequestReceived, ResponseStarted]
`

// auditedCluster is a cluster with controllers that keeps the answers to writes.
func auditedCluster(t *testing.T) *cluster {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "audit.yaml")
	must(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	return ownCluster(t, "audited", "--apiserver-arg=--audit-policy-file="+policy)
}

// autoscale has the controller of HorizontalPodAutoscalers scale a Deployment.
func (w *writers) autoscale(name string) {
	w.t.Helper()
	const replicas = 2
	d, err := w.client.AppsV1().Deployments(w.namespace).Create(w.ctx, deployment(name, 1), metav1.CreateOptions{FieldManager: ours + "autoscaled"})
	w.wrote("autoscaled", d, err)
	scalers := w.client.AutoscalingV2().HorizontalPodAutoscalers(w.namespace)
	_, err = scalers.Create(w.ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			MinReplicas:    new(int32(replicas)), MaxReplicas: replicas + 1,
		},
	}, metav1.CreateOptions{})
	must(w.t, err)
	eventually(w.t, "the HorizontalPodAutoscaler scales", testPatience, func() []string {
		d, err := w.client.AppsV1().Deployments(w.namespace).Get(w.ctx, name, metav1.GetOptions{})
		must(w.t, err)
		if *d.Spec.Replicas != replicas || d.Status.AvailableReplicas != replicas {
			return []string{fmt.Sprintf("%d replicas of %d", d.Status.AvailableReplicas, *d.Spec.Replicas)}
		}
		return nil
	})
	must(w.t, scalers.Delete(w.ctx, name, metav1.DeleteOptions{}))
}

// auditedWrite is a write of which the API server's audit log has the answer.
type auditedWrite struct{ verb, resource, manager, subresource string }

// audited are the writes by the version that each has made. A write that changes nothing is
// answered with the version of another one.
func (w *writers) audited() map[string][]auditedWrite {
	w.t.Helper()
	file, err := os.Open(filepath.Join(w.cluster.dir, "audit.log"))
	must(w.t, err)
	defer file.Close()
	writes := map[string][]auditedWrite{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return writes
		}
		must(w.t, err)
		var e struct {
			Verb, RequestURI, UserAgent string
			ObjectRef                   struct{ Namespace, Resource, Subresource string }
			ResponseObject              struct {
				Metadata struct{ ResourceVersion string }
			}
		}
		must(w.t, json.Unmarshal(line, &e))
		version := e.ResponseObject.Metadata.ResourceVersion
		if version == "" || e.ObjectRef.Namespace != w.namespace {
			continue
		}
		request, err := url.Parse(e.RequestURI)
		must(w.t, err)
		manager := request.Query().Get("fieldManager")
		if manager == "" {
			manager, _, _ = strings.Cut(e.UserAgent, "/") // as the API server does
		}
		writes[version] = append(writes[version], auditedWrite{e.Verb, e.ObjectRef.Resource, manager, e.ObjectRef.Subresource})
	}
}

// judgeAudited compares the events with the audit log, also those of what controllers wrote: who is
// named is right. Of the updates eight of ten are named.
func (w *writers) judgeAudited(events []read.Event) {
	w.t.Helper()
	writes := w.audited()
	updates, named, scaled := 0, 0, 0
	unnamed := map[string]int{}
	for i := range events {
		e := &events[i]
		if !e.AboutObject() || e.Attribute("namespace") != w.namespace || e.Op() == "deleted" {
			continue
		}
		by := auditedWrite{manager: e.Attribute("manager"), subresource: e.Attribute("managersubresource")}
		of := writes[e.Attribute("resourceversion")]
		if e.Op() == "updated" {
			if updates++; by.manager != "" {
				named++
			} else if len(of) > 0 {
				unnamed[of[0].verb+" "+of[0].manager+" "+of[0].subresource]++
			} else {
				unnamed["not in the log"]++
			}
		}
		if by.manager == "" {
			continue
		}
		if !slices.ContainsFunc(of, func(a auditedWrite) bool {
			return a.verb != "delete" && a.manager == by.manager && a.subresource == by.subresource
		}) {
			w.t.Errorf("%s %s is by %+v, the audit log has %+v", e.GroupResource(), e.ID(), by, of)
		}
		if by.subresource == "scale" && by.manager == "kube-controller-manager" {
			scaled++
		}
	}
	w.t.Logf("%d of %d updates have their manager; those without: %v", named, updates, unnamed)
	if named*10 < updates*8 {
		w.t.Error("want eight of ten")
	}
	if scaled == 0 {
		w.t.Error("no event is of the HorizontalPodAutoscaler's controller")
	}
}
