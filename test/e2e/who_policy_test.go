package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
)

// printedPolicy is what `bridge audit policy` prints.
func printedPolicy(t *testing.T, args ...string) []byte {
	t.Helper()
	binary, err := bridgeBinary()
	must(t, err)
	out, err := exec.CommandContext(t.Context(), binary, append([]string{"audit", "policy"}, args...)...).Output()
	must(t, err)
	return out
}

// auditPolicyFile is a file for --audit-policy-file.
func auditPolicyFile(t *testing.T, level string) (path string) {
	t.Helper()
	// The control plane looks in the log for the watches of its components.
	watches := []byte("rules:\n- {level: Metadata, verbs: [watch], omitStages: [ResponseComplete]}\n")
	path = filepath.Join(t.TempDir(), "audit.yaml")
	policy := bytes.Replace(printedPolicy(t, "--log", level), []byte("rules:\n"), watches, 1)
	must(t, os.WriteFile(path, policy, 0o600))
	return path
}

// applyAuditPolicy applies the admission policy, bound to all namespaces or to those with labels.
func (l *lab) applyAuditPolicy(labels map[string]string) {
	l.t.Helper()
	group := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	for document := range bytes.SplitSeq(printedPolicy(l.t), []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		must(l.t, yamlutil.Unmarshal(document, &object.Object))
		resource := "validatingadmissionpolicies"
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			resource = "validatingadmissionpolicybindings"
			if labels != nil {
				must(l.t, unstructured.SetNestedStringMap(object.Object, labels,
					"spec", "matchResources", "namespaceSelector", "matchLabels"))
			}
		}
		_, err := l.dynamic.Resource(group.WithResource(resource)).Create(l.ctx, object, metav1.CreateOptions{})
		must(l.t, err)
	}
}

// admit applies the policy, and waits until the API server minds it.
func (w *whoRun) admit() {
	w.t.Helper()
	w.applyAuditPolicy(nil)
	eventually(w.t, "the policy's notes", testPatience, func() []string {
		_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
		}, metav1.CreateOptions{})
		must(w.t, err)
		text, err := os.ReadFile(filepath.Join(w.cluster.dir, "audit.log"))
		must(w.t, err)
		if !bytes.Contains(text, []byte("attribution.kubebridge.dev/uid")) {
			return []string{"none"}
		}
		return nil
	})
}
