package e2e_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var k9sPicture = flag.String("k9s.picture", "", "file for a picture of K9s on the past, as SVG; make picture")

// terminal is a program in a terminal of its own, through tmux.
type terminal struct {
	t       *testing.T
	session string
	socket  string
}

// newTerminal runs a command in a terminal of 160 by 45 characters.
func newTerminal(t *testing.T, env []string, command ...string) *terminal {
	t.Helper()
	m := &terminal{t: t, session: "bridge", socket: filepath.Join(t.TempDir(), "tmux")}
	args := []string{"new-session", "-d", "-s", m.session, "-x", "160", "-y", "45"}
	for _, e := range env {
		args = append(args, "-e", e)
	}
	m.tmux(append(args, command...)...)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", m.socket, "kill-server").Run() }) // it may have ended
	return m
}

func (m *terminal) tmux(args ...string) string {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), "tmux", append([]string{"-S", m.socket}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// typed types keys, by tmux's names, or text.
func (m *terminal) typed(keys ...string) {
	m.t.Helper()
	m.tmux(append([]string{"send-keys", "-t", m.session}, keys...)...)
}

// shows waits until the screen has all texts, and returns it.
func (m *terminal) shows(texts ...string) (screen string) {
	m.t.Helper()
	eventually(m.t, "the screen", time.Minute, func() (missing []string) {
		screen = m.tmux("capture-pane", "-p", "-t", m.session)
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = append(missing, text)
			}
		}
		if len(missing) > 0 {
			return append(missing, "are not on\n"+screen)
		}
		return nil
	})
	return screen
}

// K9s reads the past as it reads a cluster.
func TestK9s(t *testing.T) {
	t.Parallel()
	k9s := os.Getenv("K9S")
	if k9s == "" {
		t.Skip("K9S names the program; make test-k9s builds it")
	}
	l := newLab(t, live(t))
	b, d := l.recording()
	l.createConfigMap("settings", "1")
	l.createDeployment("web", 2)
	l.waitRolledOut("web")
	l.moment(l.kindsOfNamespaces())
	at := time.Now().Truncate(time.Second).Add(time.Second) // behind all of this
	eventually(t, "the next second", time.Minute, func() []string {
		if time.Now().Before(at) {
			return []string{"it is " + time.Now().String()}
		}
		return nil
	})
	l.createConfigMap("behind-everything", "1")
	l.recorded(b, "cm/behind-everything")
	l.served(b, "--at", at.UTC().Format(time.RFC3339))
	l.k9sWorks(t, k9s, d)
	l.stop(b)
}

func (l *lab) k9sWorks(t *testing.T, k9s string, d *definition) {
	t.Helper()
	home := t.TempDir()
	m := newTerminal(t, []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_STATE_HOME=" + home, "XDG_DATA_HOME=" + home, "XDG_CACHE_HOME=" + home, "K9S_CONFIG_DIR=" + home, "TERM=xterm-256color",
	}, k9s, "--kubeconfig", filepath.Join(l.dir, "past.yaml"), "--command", "pods", "-n", l.namespace, "--splashless", "--logoless", "--crumbsless", "--readonly")
	look := func(what string, texts ...string) {
		t.Helper()
		screen := m.shows(texts...)
		t.Logf("%s:\n%s", what, screen)
		if strings.Contains(screen, "💥") || strings.Contains(strings.ToLower(screen), "error") {
			t.Errorf("%s: an error is on the screen:\n%s", what, screen)
		}
	}
	look("pods", "web-", "Running")
	m.typed("d")
	look("a pod described", "Containers:", "app:1")
	m.typed("Escape")
	m.shows("NAME↑", "Running") // else the terminal takes the next key as one with Alt
	m.typed("y")
	look("a pod as YAML", "apiVersion: v1", "kind: Pod")
	m.typed("Escape")
	m.shows("NAME↑", "Running")
	for _, page := range [][]string{
		{"deployments", "deployments(" + l.namespace, "web"},
		{"configmaps", "configmaps(" + l.namespace, "settings"},
		{d.name(), "things(", "one"},
		{"namespaces", "namespaces(all)", l.namespace},
		{"pods all", "pods(all)", "web-"},
	} {
		m.typed(":", page[0], "Enter")
		look(page[0], page[1:]...)
	}
	if *k9sPicture == "" {
		return
	}
	m.tmux("resize-window", "-t", m.session, "-x", "120", "-y", "20")
	m.typed(":", "pods "+l.namespace, "Enter")
	m.shows("pods("+l.namespace, "web-")
	must(t, os.WriteFile(*k9sPicture, pictureOf(m.tmux("capture-pane", "-e", "-p", "-t", m.session)), 0o600))
}
