package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/testkit"
	"github.com/kubebridge/bridge/test/e2e/harness"
)

// whoWebhook is an address for what an API server posts.
type whoWebhook struct {
	kubeconfig string // for --audit-webhook-config-file
	section    string // of the history sink
}

func newWhoWebhook(t *testing.T) *whoWebhook {
	t.Helper()
	dir := t.TempDir()
	address, err := harness.FreeAddress()
	must(t, err)
	ca := testkit.NewCA(t)
	cert, key := ca.Files(t, dir)
	authority, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	must(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.DER}), 0o600))
	must(t, os.WriteFile(token, []byte("the token of the API server"), 0o600))
	p := &whoWebhook{
		kubeconfig: filepath.Join(dir, "webhook.kubeconfig"),
		section:    fmt.Sprintf("{address: %q, certFile: %q, keyFile: %q, tokenFile: %q}", address, cert, key, token),
	}
	must(t, os.WriteFile(p.kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: bridge, cluster: {server: "https://%s/", certificate-authority: %q}}]
users: [{name: apiserver, user: {tokenFile: %q}}]
contexts: [{name: bridge, context: {cluster: bridge, user: apiserver}}]
current-context: bridge
`, address, authority, token), 0o600))
	return p
}

// whoRelay writes what is in an audit log into files elsewhere, as a bad log shipper does: in
// another order, some lines twice, rotated and compressed.
type whoRelay struct {
	*testing.T
	dir   string
	lines [][]byte // that are not written
	file  *os.File
	size  int
	files []whoRotated
	errs  chan error
}

type whoRotated struct {
	path string
	at   time.Time
}

const (
	whoRelayHeld = 100       // lines change places with so many others
	whoRelayFile = 256 << 10 // bytes
	whoRelayKept = 10        // rotated files
	// A bridge that was killed on a busy machine has read them by then.
	whoRelayAge = time.Minute
)

func startWhoRelay(t *testing.T, log string) *whoRelay {
	t.Helper()
	r := &whoRelay{T: t, dir: t.TempDir(), errs: make(chan error, 1)}
	in, err := os.Open(log)
	must(t, err)
	must(t, r.create())
	go func() {
		defer in.Close()
		r.errs <- r.run(in)
	}()
	return r
}

func (r *whoRelay) path() string { return filepath.Join(r.dir, "audit.log") }

func (r *whoRelay) create() (err error) {
	r.file, err = os.OpenFile(r.path(), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	r.size = 0
	return err
}

func (r *whoRelay) run(in io.Reader) error {
	var rest []byte
	buffer := make([]byte, 64<<10)
	for r.Context().Err() == nil {
		n, err := in.Read(buffer)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		rest = append(rest, buffer[:n]...)
		for {
			line, after, found := bytes.Cut(rest, []byte("\n"))
			if !found {
				break
			}
			r.lines, rest = append(r.lines, append(bytes.Clone(line), '\n')), after
			if rand.IntN(50) == 0 {
				r.lines = append(r.lines, r.lines[len(r.lines)-1])
			}
		}
		if n == 0 || len(r.lines) >= whoRelayHeld {
			if err := r.flush(); err != nil {
				return err
			}
		}
		if n == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

func (r *whoRelay) flush() error {
	rand.Shuffle(len(r.lines), func(i, j int) { r.lines[i], r.lines[j] = r.lines[j], r.lines[i] })
	for _, line := range r.lines {
		if _, err := r.file.Write(line); err != nil {
			return err
		}
		r.size += len(line)
	}
	r.lines = nil
	if r.size < whoRelayFile {
		return nil
	}
	if err := r.file.Close(); err != nil {
		return err
	}
	rotated := whoRotated{at: time.Now()}
	rotated.path = filepath.Join(r.dir, fmt.Sprintf("audit-%s.log", rotated.at.Format("150405.000000")))
	if err := errors.Join(os.Rename(r.path(), rotated.path), r.create()); err != nil {
		return err
	}
	// As in the API server: what was rotated is compressed, and the oldest is removed.
	if r.files = append(r.files, rotated); len(r.files) > 1 {
		if err := compressFile(r.files[len(r.files)-2].path); err != nil {
			return err
		}
	}
	for len(r.files) > whoRelayKept && time.Since(r.files[0].at) > whoRelayAge {
		if err := os.Remove(r.files[0].path + ".gz"); err != nil {
			return err
		}
		r.files = r.files[1:]
	}
	return nil
}

func compressFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out, err := os.Create(path + ".gz")
	if err != nil {
		return err
	}
	defer out.Close()
	z := gzip.NewWriter(out)
	_, err = z.Write(text)
	return errors.Join(err, z.Close(), os.Remove(path))
}

// check fails the test when the relay has ended.
func (r *whoRelay) check() {
	r.Helper()
	select {
	case err := <-r.errs:
		r.Fatal(err)
	default:
	}
}

// exportBadly returns lines of an audit log in another order, without one of so many, and with some
// twice or cut.
func exportBadly(lines [][]byte, lost int) (out [][]byte) {
	for _, line := range lines {
		switch {
		case rand.IntN(lost) == 0:
			continue
		case rand.IntN(20) == 0:
			out = append(out, line)
		case rand.IntN(100) == 0:
			line = append(bytes.Clone(line[:rand.IntN(len(line)-1)]), '\n')
		}
		out = append(out, line)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// whoExporter fills a stream with what is in audit logs, as a bad one does, and late.
type whoExporter struct {
	*testing.T
	server *server.Server
	js     jetstream.JetStream
	lost   int // one of so many
	logs   []*os.File
	rest   map[*os.File][]byte // a line that is not whole yet
	stop   chan struct{}
	errs   chan error
}

func startWhoExporter(t *testing.T, lost int, logs ...string) *whoExporter {
	t.Helper()
	x := &whoExporter{T: t, lost: lost, rest: map[*os.File][]byte{}, stop: make(chan struct{}), errs: make(chan error, 1)}
	var err error
	x.server, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	must(t, err)
	x.server.Start()
	t.Cleanup(func() { x.server.Shutdown(); x.server.WaitForShutdown() })
	if !x.server.ReadyForConnections(startTime) {
		t.Fatal("the broker is not ready")
	}
	conn, err := nats.Connect(x.server.ClientURL())
	must(t, err)
	t.Cleanup(conn.Close)
	x.js, err = jetstream.New(conn)
	must(t, err)
	for _, name := range []string{"AUDIT", "SILENT"} {
		_, err = x.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
		must(t, err)
	}
	for _, log := range logs {
		f, err := os.Open(log)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		x.logs = append(x.logs, f)
	}
	go func() { x.errs <- x.run() }()
	return x
}

// section is an item of the key streams.
func (x *whoExporter) section(stream string) string {
	return fmt.Sprintf("{from: %q, delay: %s}", x.server.ClientURL()+"/"+stream, *whoDelay+5*time.Second)
}

func (x *whoExporter) run() error {
	type line struct {
		text []byte
		due  time.Time
	}
	var waiting []line
	for logs, stop := x.logs, x.stop; logs != nil || len(waiting) > 0; {
		isLast := false
		select {
		case <-stop:
			isLast, stop = true, nil
		case <-time.After(200 * time.Millisecond):
		}
		now := time.Now()
		var due [][]byte
		for _, log := range logs {
			lines, err := x.read(log)
			if err != nil {
				return err
			}
			for _, text := range lines {
				waiting = append(waiting, line{text, now.Add(*whoDelay)})
			}
		}
		if isLast {
			logs = nil
		}
		for len(waiting) > 0 && !waiting[0].due.After(now) {
			due, waiting = append(due, waiting[0].text), waiting[1:]
		}
		for _, text := range exportBadly(due, x.lost) {
			if _, err := x.js.PublishAsync("AUDIT.x", text, jetstream.WithStallWait(startTime)); err != nil {
				return err
			}
		}
	}
	<-x.js.PublishAsyncComplete()
	return nil
}

// read returns the lines that were added to a log.
func (x *whoExporter) read(log *os.File) (lines [][]byte, err error) {
	text, err := io.ReadAll(log)
	text = append(x.rest[log], text...)
	for {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		if !found {
			x.rest[log] = text
			return lines, err
		}
		lines, text = append(lines, append(bytes.Clone(line), '\n')), rest
	}
}

// end waits until everything is in the stream.
func (x *whoExporter) end() {
	x.Helper()
	close(x.stop)
	must(x.T, <-x.errs)
}

// startSecondAPIServer starts one with the flags of the first, in front of the same etcd, with a
// port and an audit log of its own. It ends with the test.
func startSecondAPIServer(t *testing.T, c *cluster) (config *rest.Config, auditLog string) {
	t.Helper()
	auditLog = filepath.Join(c.dir, "audit-second.log")
	config, _ = startAPIServer(t, c, "second", "--audit-webhook", "--audit-log-path="+auditLog)
	return config, auditLog
}

// startAPIServer starts one with the flags of the first, but for those that begin with without, and
// with some more. It returns its process too.
func startAPIServer(t *testing.T, c *cluster, name, without string, more ...string) (config *rest.Config, pid int) {
	t.Helper()
	flags, err := apiServerFlagsOf(c.dir)
	must(t, err)
	address, err := harness.FreeAddress()
	must(t, err)
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	binary, err := controlPlaneBinary()
	must(t, err)
	flags = append(slices.DeleteFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, without) }),
		append(more, "--secure-port="+port)...)
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"component", "kube-apiserver"}, flags...)...)
	stdin, err := cmd.StdinPipe() // it ends when that is closed
	must(t, err)
	log, err := os.Create(filepath.Join(c.dir, name+"-apiserver.log"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // it was killed
		_ = log.Close()
	})
	config = rest.CopyConfig(c.Admin())
	config.Host = "https://" + address
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	eventually(t, "the API server "+name, startTime, func() []string {
		if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
	return config, cmd.Process.Pid
}

// apiServerFlagsOf are those of the API server that runs in a directory.
func apiServerFlagsOf(dir string) ([]string, error) {
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, path := range processes {
		text, err := os.ReadFile(path)
		args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if err == nil && len(args) > 3 && args[2] == "kube-apiserver" && strings.Contains(string(text), dir+"/") {
			return args[3:], nil
		}
	}
	return nil, fmt.Errorf("no API server runs in %s", dir)
}
