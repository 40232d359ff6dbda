package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// documentedKubectl are the lines of kubectl in a page of docs/, in its text and in its blocks.
func documentedKubectl(t *testing.T, page string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	must(t, err)
	for i, part := range strings.Split(string(text), "```") {
		if i%2 == 1 {
			for _, line := range kubectlLine.FindAllString(part, -1) {
				lines = append(lines, comment.ReplaceAllString(line, ""))
			}
			continue
		}
		for _, m := range kubectlSpan.FindAllStringSubmatch(part, -1) {
			lines = append(lines, strings.Join(strings.Fields(m[1]), " "))
		}
	}
	return lines
}

var (
	kubectlSpan = regexp.MustCompile("`(kubectl [^`…]+)`")
	// A line of a block continues until one that begins with a word.
	kubectlLine = regexp.MustCompile(`(?m)^kubectl .*(\n[ \t].*)*`)
	// kubelets are asked by these; the nodes of the tests have none.
	needsKubelet = regexp.MustCompile(`^kubectl (.* )?(logs|exec|port-forward|run) `)
	// noKubelet is how the API server then answers, when it has found the pod.
	noKubelet = regexp.MustCompile(`pods/log bridge-|unable to upgrade connection`)
	// elsewhereKubectl are lines for another place than the cluster of a bridge.
	elsewhereKubectl = regexp.MustCompile(`^kubectl (krew|bridge) |^kubectl (exec|port-forward)$|rollout restart$|get --all-namespaces$| POD `)
)

// awaitsStorage makes claims of volumes bind, and lets them grow.
const awaitsStorage = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: grows, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: state}
spec: {storageClassName: grows, accessModes: [ReadWriteOnce], capacity: {storage: 20Gi}, hostPath: {path: /nowhere}}
`

// TestRunbookKubectl carries out what docs/runbooks.md and docs/operations.md do with kubectl, on a
// cluster in which the example of the plain manifests is installed. The commands of the bridge in
// them are those of TestRunbookCommands, in internal/cli.
func TestRunbookKubectl(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	config, err := clientcmd.LoadFromFile(newcomers(t).Kubeconfig)
	must(t, err)
	config.Contexts[config.CurrentContext].Namespace = "streaming"
	must(t, clientcmd.WriteToFile(*config, filepath.Join(w.dir, "kubeconfig")))
	w.env = append(w.env, "KUBECONFIG="+filepath.Join(w.dir, "kubeconfig"), "POD=bridge-0", "NAMESPACE=streaming")
	must(t, os.WriteFile(filepath.Join(w.dir, "storage.yaml"), []byte(awaitsStorage), 0o600))
	w.namespace("streaming")
	w.run("kubectl apply -f storage.yaml")
	w.run("kubectl apply --server-side -f deploy/testdata/crds && kubectl wait --for condition=Established crd --all")
	w.namespace("shop")
	w.run("kubectl apply --server-side --kustomize deploy/kustomize/overlays/example")
	await := func() { t.Helper(); w.run("kubectl rollout status statefulset bridge --timeout 240s") }
	await()
	done, kubelet := []string{}, 0
	for _, page := range []string{"runbooks.md", "operations.md"} {
		for _, command := range documentedKubectl(t, page) {
			if elsewhereKubectl.MatchString(command) || slices.Contains(done, command) {
				continue
			}
			done = append(done, command)
			if !needsKubelet.MatchString(command) {
				if strings.TrimSpace(w.run(command)) == "" {
					t.Errorf("%s: $ %s prints nothing", page, command)
				}
				continue
			}
			kubelet++
			await()
			if said := w.run(command + " 2>&1 </dev/null || true"); !noKubelet.MatchString(said) {
				t.Errorf("%s: $ %s\n%s", page, command, said)
			}
		}
	}
	if len(done) < 12 || kubelet > 6 {
		t.Errorf("%d commands were found, %d of them for a kubelet: %q", len(done), kubelet, done)
	}
}
