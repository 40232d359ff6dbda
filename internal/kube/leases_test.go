package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/kube"
)

// TestLeases compares what goes over the wire with what an API server takes and answers.
func TestLeases(t *testing.T) {
	const stored = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",
	 "metadata":{"name":"bridge","namespace":"tools","resourceVersion":"7","uid":"u-1",
	  "labels":{"team":"a"},"creationTimestamp":"2026-01-02T03:04:05Z"},
	 "spec":{"holderIdentity":"pod-0","leaseDurationSeconds":15,"leaseTransitions":2,
	  "acquireTime":"2026-01-02T03:04:05.000006Z","renewTime":"2026-01-02T03:04:07.000008Z"}}`
	var got []string
	var sent map[string]any
	code, answer := 200, stored
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path)
		sent = nil
		if body, _ := io.ReadAll(r.Body); len(body) > 0 {
			if err := json.Unmarshal(body, &sent); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	leases, err := kube.NewLeases(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}

	lease, err := leases.Get(t.Context(), "tools", "bridge")
	if err != nil || *lease.Spec.HolderIdentity != "pod-0" || lease.ResourceVersion != "7" ||
		!lease.Spec.RenewTime.Equal(&metav1.MicroTime{
			Time: time.Date(2026, 1, 2, 3, 4, 7, 8000, time.UTC),
		}) {
		t.Fatalf("got %+v, %v", lease, err)
	}
	if _, err = leases.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(stored), &want); err != nil {
		t.Fatal(err)
	}
	if a, b := text(t, sent), text(t, want); a != b {
		t.Errorf("an update sends\n%s, want what was read\n%s", a, b)
	}
	if _, err = leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tools", Name: "bridge"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("pod-1")},
	}); err != nil {
		t.Fatal(err)
	}
	if a := text(t, sent); a != `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",`+
		`"metadata":{"name":"bridge","namespace":"tools"},"spec":{"holderIdentity":"pod-1"}}` {
		t.Errorf("a create sends %s", a)
	}
	const path = "/apis/coordination.k8s.io/v1/namespaces/tools/leases"
	if a, b := strings.Join(got, "\n"),
		"GET "+path+"/bridge\nPUT "+path+"/bridge\nPOST "+path; a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}

	for _, test := range []struct {
		code   int
		reason metav1.StatusReason
		is     func(error) bool
	}{
		{404, metav1.StatusReasonNotFound, apierrors.IsNotFound},
		{409, metav1.StatusReasonConflict, apierrors.IsConflict},
		{409, metav1.StatusReasonAlreadyExists, apierrors.IsAlreadyExists},
		{403, metav1.StatusReasonForbidden, apierrors.IsForbidden},
	} {
		code = test.code
		answer = text(t, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: int32(test.code),
			Status: metav1.StatusFailure, Reason: test.reason, Message: "the server's own words",
		})
		if _, err = leases.Update(t.Context(), lease); !test.is(err) ||
			err.Error() != "the server's own words" {
			t.Errorf("%s: got %v", test.reason, err)
		}
	}
	code, answer = 502, `<html>` // by a proxy
	if _, err = leases.Get(t.Context(), "tools", "bridge"); err == nil ||
		!strings.Contains(err.Error(), "leases.coordination.k8s.io") {
		t.Errorf("got %v", err)
	}
	code, answer = 200, `<html>`
	if _, err = leases.Get(t.Context(), "tools", "bridge"); err == nil {
		t.Error("nonsense was taken for a Lease")
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
