package deploy_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
)

// TestReadmeInstalls carries out what docs/start.md says about Helm, with the page's own
// configuration: the commands are taken from it. The other commands are those of TestReadme, in
// test/e2e.
func TestReadmeInstalls(t *testing.T) {
	text, err := os.ReadFile("../docs/start.md")
	must(t, err)
	_, configuration, found := strings.Cut(string(text), "\n```yaml\n")
	configuration, _, closed := strings.Cut(configuration, "```")
	if !found || !closed {
		t.Fatal("the page has no configuration")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "bridge.yaml"), []byte(configuration), 0o600))
	toValues := regexp.MustCompile(`(?m)^.* > values\.yaml$`).FindString(string(text))
	install := regexp.MustCompile(`(?m)^helm install (.*\\\n)*.*$`).FindString(string(text))
	if toValues == "" || install == "" {
		t.Fatalf("the page does not install: %q, %q", toValues, install)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", toValues)
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("$ %s\n%s%v", toValues, said, err)
	}
	args := strings.Fields(strings.ReplaceAll(install, "\\\n", " "))[2:]
	if args[0] != "bridge" || args[1] != "deploy/"+chartDir {
		t.Fatalf("it installs %q from %q", args[0], args[1])
	}
	flags := flag.NewFlagSet("helm", flag.ContinueOnError)
	in := flags.String("namespace", "", "")
	flags.Bool("create-namespace", false, "")
	file, assignment := flags.String("values", "", ""), flags.String("set", "", "")
	must(t, flags.Parse(args[2:]))
	text, err = os.ReadFile(filepath.Join(dir, *file))
	must(t, err)
	v := readValues(t, string(text))
	must(t, strvals.ParseInto(*assignment, v))
	list := objects(t, mustRender(t, v))
	set := as[appsv1.StatefulSet](t, find(t, list, "StatefulSet", ""))
	if image := set.Spec.Template.Spec.Containers[0].Image; set.Namespace != *in || image != "ghcr.io/kubebridge/bridge:v1.2.3" {
		t.Errorf("it installs %s in %s, not in %s", image, set.Namespace, *in)
	}
	t.Run("the API server takes it, without a warning", func(t *testing.T) {
		c := live(t)
		must(t, c.apply(t.Context(), list, true))
		if warnings := c.takeWarnings(); len(warnings) > 0 {
			t.Errorf("the API server warns: %s", strings.Join(warnings, "; "))
		}
	})
}
