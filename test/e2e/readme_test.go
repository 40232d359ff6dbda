package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// readmeCommand is a command of README, with what README shows of its output.
type readmeCommand struct {
	line   int
	text   string // without its comment, with single spaces
	sample []string
}

// fencedBlock is a code block of a Markdown text.
type fencedBlock struct {
	line     int // of its first line
	language string
	lines    []string
}

func fencedBlocks(markdown string) (blocks []fencedBlock) {
	open := false
	for n, line := range strings.Split(markdown, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !open:
			blocks = append(blocks, fencedBlock{line: n + 2, language: language})
			open = true
		case fence:
			open = false
		case open:
			b := &blocks[len(blocks)-1]
			b.lines = append(b.lines, line)
		}
	}
	return blocks
}

var comment = regexp.MustCompile(`\s+# .*$`)

// commands are those of a block: its lines, or those after a prompt, with what is below as their
// output.
func (b *fencedBlock) commands() (commands []readmeCommand) {
	transcript := strings.HasPrefix(b.lines[0], "$ ")
	for i := 0; i < len(b.lines); i++ {
		line, prompt := strings.CutPrefix(b.lines[i], "$ ")
		if transcript && !prompt {
			last := &commands[len(commands)-1]
			last.sample = append(last.sample, line)
			continue
		}
		c := readmeCommand{line: b.line + i}
		for strings.HasSuffix(line, `\`) && i+1 < len(b.lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + b.lines[i]
		}
		if c.text = oneSpace(comment.ReplaceAllString(line, "")); c.text != "" {
			commands = append(commands, c)
		}
	}
	return commands
}

// oneSpace makes the spaces single that align commands, but for those in quotes.
func oneSpace(command string) string {
	quoted := len(command)
	if i := strings.IndexAny(command, `'"`); i >= 0 {
		quoted = i
	}
	space := regexp.MustCompile(" +")
	return strings.TrimSpace(space.ReplaceAllString(command[:quoted], " ") + command[quoted:])
}

// What a line of a sample shows that is another at each run.
var varies = []struct{ found, pattern *regexp.Regexp }{
	{regexp.MustCompile(`\d\d:\d\d:\d\d\\\.\d{3}`), regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}`)},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \\\+00:00`), regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+00:00`)},
	{regexp.MustCompile(`@\d+`), regexp.MustCompile(`@\d+`)},
	{regexp.MustCompile(`web-[0-9a-f]+-[a-z0-9]{5}`), regexp.MustCompile(`web-[0-9a-f]+-[a-z0-9]{5}`)},
	{regexp.MustCompile(` \d{3}\b`), regexp.MustCompile(` \d+`)},
	{regexp.MustCompile(` +`), regexp.MustCompile(` +`)},
}

// samplePattern matches the lines that a line of a sample stands for.
func samplePattern(line string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(strings.TrimRight(line, " "))
	for _, v := range varies {
		pattern = v.found.ReplaceAllLiteralString(pattern, v.pattern.String())
	}
	return regexp.MustCompile(`(?m)^` + pattern)
}

// walk is a newcomer who types what README says, in a fresh clone, on a machine whose kubectl talks
// to a cluster.
type walk struct {
	t     *testing.T
	dir   string // the clone
	env   []string
	admin string // addresses that stand for the default ones
	nats  string
	// typed is what README's examples are here: addresses and times.
	typed  *strings.Replacer
	bridge *session // that runs at the moment
	kafka  string   // address of a broker
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	c := newcomers(t)
	w := &walk{t: t, dir: freshClone(t)}
	var err error
	w.admin, err = harness.FreeAddress()
	must(t, err)
	w.nats, err = harness.FreeAddress()
	must(t, err)
	w.env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "BRIDGE_") || strings.HasPrefix(v, "KUBECONFIG=") || strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "TZ=")
	})
	// The machine may have something at the default addresses.
	w.env = append(w.env, "TZ=UTC", "KUBECONFIG="+c.Kubeconfig, "PATH="+tools(t)+":"+os.Getenv("PATH"), "BRIDGE_ADMIN_ADDRESS="+w.admin)
	w.times("", "")
	return w
}

// newcomers is a cluster for a newcomer alone: the bridge streams all of it.
var newcomers = startOnce("newcomers")

// freshClone copies what git knows of the repository, as it is in the work tree.
func freshClone(t *testing.T) string {
	t.Helper()
	root, err := harness.Root()
	must(t, err)
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	must(t, err)
	dir := filepath.Join(t.TempDir(), "bridge")
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !info.Mode().IsRegular() { // removed in the work tree, or a link
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		must(t, err)
		must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), text, info.Mode().Perm()))
	}
	return dir
}

// times says what the times in README's questions are here. What a terminal shows has to be asked
// for.
func (w *walk) times(before, after string) {
	w.typed = strings.NewReplacer("bin/bridge watch", "bin/bridge watch -o short", "127.0.0.1:4222", w.nats, "127.0.0.1:8080", w.admin, "13:00", before, "14:03", after)
}

// session is a command that runs.
type session struct {
	w     *walk
	text  string
	cmd   *exec.Cmd
	out   harness.Log // both outputs
	ended chan error
}

// start types a command and does not wait for its end.
func (w *walk) start(text string, env ...string) *session {
	w.t.Helper()
	s := &session{w: w, text: text, ended: make(chan error, 1)}
	s.cmd = exec.Command("bash", "-c", w.typed.Replace(text)) // interrupted, as with Ctrl-C
	s.cmd.Dir, s.cmd.Env = w.dir, append(slices.Clone(w.env), env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.WaitDelay = 10 * time.Second
	must(w.t, s.cmd.Start())
	go func() { s.ended <- s.cmd.Wait() }()
	return s
}

// run types a command that ends by itself, and gives what it prints.
func (w *walk) run(text string, env ...string) string {
	w.t.Helper()
	s := w.start(text, env...)
	select {
	case err := <-s.ended:
		if err != nil {
			w.t.Fatalf("$ %s\n%s%v", text, s.out.String(), err)
		}
	case <-time.After(5 * time.Minute):
		s.kill()
		w.t.Fatalf("$ %s\n%sit does not end", text, s.out.String())
	}
	return s.out.String()
}

// shows waits until a command has printed something for each pattern.
func (s *session) shows(patterns ...*regexp.Regexp) {
	s.w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		i := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return !p.MatchString(s.out.String()) })
		if i < 0 {
			return
		}
		select {
		case err := <-s.ended:
			s.w.t.Fatalf("$ %s\n%sit ended (%v), and nothing is as %s", s.text, s.out.Tail(40), err, patterns[i])
		default:
		}
		if time.Now().After(deadline) {
			s.kill()
			s.w.t.Fatalf("$ %s\n%snothing is as %s", s.text, s.out.Tail(40), patterns[i])
		}
	}
}

// interrupt is Ctrl-C, which has to end the command cleanly.
func (s *session) interrupt() {
	s.w.t.Helper()
	must(s.w.t, syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT))
	select {
	case <-s.ended: // bash's exit code is that of the signal
	case <-time.After(time.Minute):
		s.kill()
		s.w.t.Fatalf("$ %s\n%sit does not end after Ctrl-C", s.text, s.out.String())
	}
}

func (s *session) kill() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }

// ready waits until the bridge that runs is ready.
func (w *walk) ready() {
	w.t.Helper()
	eventually(w.t, "the bridge is ready", time.Minute, func() []string {
		select {
		case err := <-w.bridge.ended:
			w.t.Fatalf("$ %s\n%sit ended: %v", w.bridge.text, w.bridge.out.String(), err)
		default:
		}
		response, err := http.Get("http://" + w.admin + "/readyz")
		if err != nil {
			return []string{err.Error()}
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return []string{response.Status}
		}
		return nil
	})
}

// runBridge types a command that runs a bridge, in place of the one that runs.
func (w *walk) runBridge(text string, env ...string) {
	w.t.Helper()
	w.stopBridge()
	w.bridge = w.start(text, env...)
	w.ready()
}

func (w *walk) stopBridge() {
	w.t.Helper()
	if w.bridge != nil {
		w.bridge.interrupt()
		if !strings.Contains(w.bridge.out.String(), "bridge stopped") {
			w.t.Errorf("$ %s\n%sit did not stop cleanly", w.bridge.text, w.bridge.out.String())
		}
		w.bridge = nil
	}
}

// contains fails when an output does not match each pattern.
func (w *walk) contains(command, output string, patterns ...string) {
	w.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(`(?m)` + p).MatchString(output) {
			w.t.Errorf("$ %s\n%snothing is as %s", command, output, p)
		}
	}
}

func now() string { return time.Now().UTC().Format(time.TimeOnly) }

// TestReadme carries out the commands of README and of docs/start.md in a fresh clone, from top to
// bottom, and compares what they print with what the pages show. The test's cluster takes the place
// of kind's. A command that it does not know fails it.
func TestReadme(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	t.Cleanup(func() { w.run("kubectl delete deployment web --ignore-not-found") })
	steps := w.steps()
	known := map[string]bool{}
	var text string
	for _, page := range []string{"README.md", "docs/start.md"} {
		read, err := os.ReadFile(filepath.Join("../..", page))
		must(t, err)
		text += string(read)
		w.page(page, string(read), steps, known)
	}
	w.stopBridge()
	for command := range steps {
		if !known[command] {
			t.Errorf("no page has the command %q any more", command)
		}
	}
	w.inline(text)
}

// page carries out the commands of a page.
func (w *walk) page(name, text string, steps map[string]func(*readmeCommand), known map[string]bool) {
	w.t.Helper()
	for _, block := range fencedBlocks(text) {
		switch block.language {
		case "yaml":
			must(w.t, os.WriteFile(filepath.Join(w.dir, "bridge.yaml"), []byte(strings.Join(block.lines, "\n")+"\n"), 0o600))
			continue
		case "mermaid": // a picture
			continue
		}
		for _, c := range block.commands() {
			step, ok := steps[c.text]
			if !ok {
				w.t.Errorf("%s:%d: %q: this test does not know what it shows", name, c.line, c.text)
				continue
			}
			known[c.text] = true
			began := time.Now()
			step(&c)
			w.t.Logf("%5.1f s  $ %s", time.Since(began).Seconds(), c.text)
		}
	}
}

// elsewhere stands for a command of Helm: TestReadmeInstalls, in deploy/, carries it out.
func elsewhere(*readmeCommand) {}

// prints is a command that ends by itself, with output that matches patterns.
func (w *walk) prints(patterns ...string) func(*readmeCommand) {
	return func(c *readmeCommand) { w.contains(c.text, w.run(c.text), patterns...) }
}

// waits is a command that is repeated until its output matches patterns.
func (w *walk) waits(patterns ...string) func(*readmeCommand) {
	return func(c *readmeCommand) {
		eventually(w.t, c.text, testPatience, func() (problems []string) {
			output := w.run(c.text)
			for _, p := range patterns {
				if !regexp.MustCompile(`(?m)` + p).MatchString(output) {
					problems = append(problems, fmt.Sprintf("nothing is as %s:\n%s", p, output))
				}
			}
			return problems
		})
	}
}

// steps are what the commands have to show.
func (w *walk) steps() map[string]func(*readmeCommand) {
	const (
		status  = "bin/bridge status"
		verify  = "bin/bridge verify --config bridge.yaml --sink audit --against-cluster"
		archive = "bin/bridge archive --config bridge.yaml --sink audit --dir history"
		values  = "(echo config:; sed 's/^/  /' bridge.yaml) > values.yaml"
		install = "helm install bridge deploy/helm/bridge --namespace streaming --create-namespace " +
			"--values values.yaml --set image.tag=v1.2.3"
	)
	created := "" // when the Deployment of docs/start.md was there, with one replica
	return map[string]func(*readmeCommand){
		"make build && bin/bridge watch deployments.apps,pods -n shop": w.quickLook,
		"bin/bridge history deploy/web -n shop --field spec.replicas":  w.firstHistory,
		"make demo":           w.demo,
		"make check":          w.check,
		"make check-all":      w.check,
		"kind create cluster": func(*readmeCommand) {},
		"make build":          w.prints(),
		"bin/bridge watch":    w.watch,
		"bin/bridge run":      func(c *readmeCommand) { w.runBridge(c.text, w.natsAddress()) },

		"kubectl create deployment web --image=nginx": func(c *readmeCommand) {
			w.prints(`^deployment.apps/web created$`)(c)
			time.Sleep(time.Second) // times are whole seconds
			created = now()
			time.Sleep(time.Second)
		},
		`kubectl patch deployment web -p '{"spec":{"replicas":3}}'`: func(c *readmeCommand) {
			w.prints(`^deployment.apps/web patched$`)(c)
			time.Sleep(2 * time.Second)
			w.times(created, now())
		},
		"bin/bridge history deploy/web --field spec.replicas":   w.waits(`added +kubectl-create .* 1$`, `updated +kubectl-patch +\d+ +1 +3$`),
		"bin/bridge history deploy/web":                         w.prints("^TIME +OPERATION", "spec.replicas 1→3"),
		"bin/bridge diff deploy/web --from 13:00 --to 14:03":    w.prints(`^-  replicas: 1$`, `^\+  replicas: 3$`),
		"bin/bridge timeline --since 10m":                       w.prints(`Deployment/web`, `spec.replicas`),
		"nats --server nats://127.0.0.1:4222 subscribe 'k8s.>'": w.subscribe,
		"nats --server nats://127.0.0.1:4222 stream view K8S":   w.prints(`^k8s\.[^.]+\.apps\.v1\.deployments\.default\.web\.added$`),

		"bin/bridge validate bridge.yaml":              w.validate,
		"bin/bridge rbac --config bridge.yaml":         w.prints(`^kind: ClusterRole$`, `widgets`),
		"bin/bridge schema --config bridge.yaml":       w.prints(`asyncapi`, `k8s\.prod-eu-1`),
		"bin/bridge validate bridge.yaml --live":       w.validateLive,
		"bin/bridge sample --config bridge.yaml":       w.prints(`^# sink audit: subject k8s\.prod-eu-1\.`, `^# sink lake: topic k8s\.prod-eu-1\.`),
		"bin/bridge run --config bridge.yaml":          func(c *readmeCommand) { w.runBridge(c.text) },
		status:                                         w.prints(`^prod-eu-1: ready`, `^audit +connected`),
		"bin/bridge tail --filter 'op == \"deleted\"'": w.tail,
		verify:  w.prints(`^nothing is wrong`),
		archive: w.archive,
		"bin/bridge show deploy/web --at 14:03 --dir history": w.prints(`^  name: web$`, `^  replicas: 3$`),
		"bin/bridge token": w.prints(`^\S{16,}$`),

		values:  w.prints(),
		install: elsewhere,
	}
}

// natsAddress has the bridge without a file listen elsewhere: the machine may have a NATS server.
func (w *walk) natsAddress() string { return "BRIDGE_SINKS_NATS_NATS_SERVERS=nats://" + w.nats }

// check looks for this test in what the command would run.
func (w *walk) check(c *readmeCommand) {
	w.contains(c.text, w.run("make --dry-run "+strings.TrimPrefix(c.text, "make ")), "go test .*test/e2e|cd test/e2e")
}

func (w *walk) watch(c *readmeCommand) {
	s := w.start(c.text)
	s.shows(regexp.MustCompile(` added +deployments.apps +shop/web `), regexp.MustCompile(` added +nodes +node-0 `))
	s.interrupt()
}

// quickLook changes what README's first sample shows.
func (w *walk) quickLook(c *readmeCommand) {
	s := w.start(c.text)
	w.namespace("shop")
	s.shows() // it may still compile
	for deadline := time.Now().Add(5 * time.Minute); !w.built() && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	s.shows(regexp.MustCompile(` synced +deployments\.apps `), regexp.MustCompile(` synced +pods `))
	w.webLives()
	w.run("kubectl delete pod -n shop --grace-period 0 --force $(kubectl get pods -n shop -o name | head -1 | cut -d/ -f2)")
	patterns := []*regexp.Regexp{}
	for _, line := range c.sample {
		patterns = append(patterns, samplePattern(line))
	}
	s.shows(patterns...)
	s.interrupt()
}

// namespace makes one, unless another test has.
func (w *walk) namespace(name string) {
	w.t.Helper()
	w.run("kubectl create namespace " + name + " --dry-run=client -o yaml | kubectl apply -f -")
}

func (w *walk) built() bool {
	_, err := os.Stat(filepath.Join(w.dir, "bin", "bridge"))
	return err == nil
}

// webLives makes the Deployment of README's samples, and changes it in another second: the times of
// managedFields, by which the bridge knows who made a change, are whole seconds.
func (w *walk) webLives() (changed string) {
	w.t.Helper()
	w.run("kubectl create deployment web --image web:1 -n shop && kubectl rollout status deployment web -n shop")
	time.Sleep(time.Second)
	before := now()
	time.Sleep(time.Second)
	w.run(`kubectl patch deployment web -n shop --patch '{"spec": {"replicas": 3}}'`)
	w.run("kubectl rollout status deployment web -n shop")
	return before
}

// firstHistory is of a Deployment that lives while the bridge runs.
func (w *walk) firstHistory(c *readmeCommand) {
	w.runBridge("bin/bridge run", w.natsAddress())
	defer w.stopBridge()
	w.run("kubectl delete deployment web -n shop")
	before := w.webLives()
	patterns := make([]string, len(c.sample))
	for n, line := range c.sample {
		patterns[n] = samplePattern(line).String()
	}
	w.waits(patterns...)(c)
	time.Sleep(time.Second)
	w.times(before, now())
}

// demo runs the demo in the cluster that kubectl talks to. The one with a cluster of its own, which
// is a minute of linking, is run by TestDemo.
func (w *walk) demo(*readmeCommand) {
	w.contains("make demo", w.run("make --dry-run demo"), `cmd/demo`)
	s := w.start("make demo CLUSTER=1")
	s.shows(regexp.MustCompile(`The cluster is https://`), regexp.MustCompile(`namespaces/bridge-demo/deployments/web`))
	s.interrupt()
	w.contains(s.text, s.out.String(), `events in \d+s`, `Everything is stopped`)
}

// validate checks README's configuration as it is. From then on its brokers are on this machine.
func (w *walk) validate(c *readmeCommand) {
	w.prints(`^bridge.yaml is good: 1 informer, 2 sinks$`)(c)
	w.ourHosts()
}

// subscribe sees what changes while it runs.
func (w *walk) subscribe(c *readmeCommand) {
	s := w.start(c.text)
	s.shows(regexp.MustCompile("Subscribing on k8s"))
	w.run("kubectl create configmap seen -n shop")
	s.shows(regexp.MustCompile(`(?m)^k8s\.[^.]+\.core\.v1\.configmaps\.shop\.seen\.added$`))
	s.interrupt()
}

// validateLive does what it says: the topics that README's configuration names have to be there.
func (w *walk) validateLive(c *readmeCommand) {
	said := w.run(c.text + " 2>&1 || true")
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka))
	must(w.t, err)
	defer client.Close()
	for _, topic := range regexp.MustCompile(`--create --topic (\S+)`).FindAllStringSubmatch(said, -1) {
		_, err := kadm.NewClient(client).CreateTopic(w.t.Context(), 1, 1, nil, topic[1])
		must(w.t, err)
	}
	w.contains(c.text, said, `createTopics`)
	w.prints(`^bridge.yaml is good`)(c)
}

// ourHosts puts brokers of this machine in place of those that README's configuration names.
func (w *walk) ourHosts() {
	w.t.Helper()
	w.stopBridge()
	file := filepath.Join(w.dir, "bridge.yaml")
	w.kafka = startKafka(w.t).ListenAddrs()[0]
	text, err := os.ReadFile(file)
	must(w.t, err)
	changed := strings.NewReplacer("nats://nats:4222", startNATS(w.t, ""), "kafka-0:9092", w.kafka).Replace(string(text))
	must(w.t, os.WriteFile(file, []byte(changed), 0o600))
	must(w.t, os.WriteFile(filepath.Join(w.dir, "widgets.yaml"), []byte(widgetDefinition), 0o600))
	w.run("kubectl apply -f widgets.yaml && kubectl wait --for condition=Established crd/widgets.example.com")
}

// widgetDefinition is the custom resource that README's configuration names.
const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// tail sees a delete that happens while it runs.
func (w *walk) tail(c *readmeCommand) {
	s := w.start(c.text)
	time.Sleep(2 * time.Second) // it shows what happens from the moment that it is connected
	w.run("kubectl delete pod -n shop --grace-period 0 --force $(kubectl get pods -n shop -o name | head -1 | cut -d/ -f2)")
	s.shows(regexp.MustCompile(`deleted.*web-`))
	s.interrupt()
}

// archive reads the stream to its end.
func (w *walk) archive(c *readmeCommand) {
	s := w.start(c.text)
	s.shows(regexp.MustCompile("the stream is read to its end, and followed"))
	s.interrupt()
	time.Sleep(time.Second)
	w.times(now(), now())
}

var span = regexp.MustCompile("`((?:bin/)?bridge|make) ([a-z][a-z-]*)[^`]*`")

// inline checks that the commands that README's text names exist.
func (w *walk) inline(text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	found := 0
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		found++
		cmd := exec.CommandContext(ctx, filepath.Join(w.dir, "bin", "bridge"), m[2], "--help")
		if m[1] == "make" {
			cmd = exec.CommandContext(ctx, "make", "--dry-run", m[2])
		}
		cmd.Dir, cmd.Env = w.dir, w.env
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Errorf("README has %s: %v\n%s", m[0], err, out)
		}
	}
	if found < 5 {
		w.t.Errorf("README's text names only %d commands", found)
	}
}

// TestReadmeSamples checks the comparison itself.
func TestReadmeSamples(t *testing.T) {
	t.Parallel()
	blocks := fencedBlocks("a\n```\n$ one && two\n10:00:00.123 added pods x/web-7c9d79-zvqqf @12\n$ three   # why\n```\nb\n```yaml\nc: d\n```\n")
	if len(blocks) != 2 || blocks[0].line != 3 || blocks[1].language != "yaml" {
		t.Fatalf("%+v", blocks)
	}
	commands := blocks[0].commands()
	if got := fmt.Sprint(commands); got != "[{3 one && two [10:00:00.123 added pods x/web-7c9d79-zvqqf @12]} {5 three []}]" {
		t.Error(got)
	}
	p := samplePattern(commands[0].sample[0])
	if !p.MatchString("x\n23:59:59.000 added   pods x/web-0000ff-aaaaa @7 initial") || p.MatchString("23:59:59.000 updated pods x/web-0000ff-aaaaa @7") {
		t.Error(p)
	}
}
