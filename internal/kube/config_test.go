package kube_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/kube"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: dev
clusters:
- {name: dev-cluster, cluster: {server: "https://dev:6443"}}
- {name: prod-eu-1, cluster: {server: "https://prod:6443", certificate-authority: ca.pem}}
users:
- {name: me, user: {token: hunter2}}
contexts:
- {name: dev, context: {cluster: dev-cluster, user: me}}
- {name: prod, context: {cluster: prod-eu-1, user: me}}
- {name: broken, context: {cluster: gone, user: me}}
`

// kubeconfigFile writes a kubeconfig, and keeps the machine's own out of the test.
func kubeconfigFile(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The context names the server and the cluster.
func TestKubeconfigContext(t *testing.T) {
	file := kubeconfigFile(t, kubeconfig)
	// Relative paths in a kubeconfig are relative to it.
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "ca.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config, cluster, err := kube.RESTConfig(file, "", 50, 100)
	if err != nil || config.Host != "https://dev:6443" || cluster != "dev-cluster" || config.BearerToken != "hunter2" {
		t.Errorf("the current context: %v, %q, %v", config, cluster, err)
	}
	if !strings.HasPrefix(config.UserAgent, "bridge/") || strings.ContainsAny(config.UserAgent, "( ") {
		t.Errorf("agent %q", config.UserAgent)
	}
	config, cluster, err = kube.RESTConfig(file, "prod", 0, 0)
	if err != nil || config.Host != "https://prod:6443" || cluster != "prod-eu-1" || config.CAFile != filepath.Join(filepath.Dir(file), "ca.pem") {
		t.Errorf("another context: %v, %q, %v", config, cluster, err)
	}
	t.Setenv("KUBECONFIG", file)
	if config, _, err = kube.RESTConfig("", "", 0, 0); err != nil || config.Host != "https://dev:6443" {
		t.Errorf("by $KUBECONFIG: %v, %v", config, err)
	}
}

// A wrong kubeconfig is reported plainly.
func TestWrongKubeconfig(t *testing.T) {
	file := kubeconfigFile(t, kubeconfig)
	none := kubeconfigFile(t, strings.Replace(kubeconfig, "current-context: dev", "", 1))
	for _, test := range []struct{ name, file, context, want string }{
		{"a misspelt context", file, "prdo", `has no context "prdo": did you mean "prod"?`},
		{"a context without its cluster", file, "broken", `context "broken" names cluster "gone", which is not in the file`},
		{"no current context", none, "", "has no current context: set kubernetes.context to one of broken, dev, prod"},
		{"a missing file", file + "-missing", "", "does not exist"},
		{"no kubeconfig, in no pod", "", "", "no Kubernetes cluster configured: there is no kubeconfig"},
		{"a context without a kubeconfig", "", "prod", `has no context "prod"`},
		{"a file that is none", kubeconfigFile(t, "::"), "", "kubeconfig "},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := kube.RESTConfig(test.file, test.context, 0, 0)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	if _, _, err := kube.RESTConfig("", "", 0, 0); !errors.Is(err, kube.ErrNoConfig) {
		t.Errorf("got %v", err)
	}
}
