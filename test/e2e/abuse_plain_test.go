package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// plainName is the name of a link to the test program that makes it the plain program: a process
// that runs an embedded NATS server, watches all ConfigMaps, and publishes what it reads, as it
// stands, into one stream. Beside a bridge it shows how late the API server, the machine, and a
// stream with large messages are by themselves.
const plainName = "plain"

// plainPayload is the largest message that its server takes, as that of the bridge does.
const plainPayload = 8 << 20

// plainProgram is a running one.
type plainProgram struct {
	cmd *exec.Cmd
	in  io.Closer // it ends when this is closed
	out *bytes.Buffer
}

func (l *lab) startPlain() *plainProgram {
	l.t.Helper()
	self, err := os.Executable()
	must(l.t, err)
	dir := l.t.TempDir()
	link := filepath.Join(dir, plainName)
	must(l.t, os.Symlink(self, link))
	p := &plainProgram{out: &bytes.Buffer{}}
	p.cmd = exec.CommandContext(l.ctx, link, l.kubeconfig(), dir)
	p.cmd.Stdout, p.cmd.Stderr = p.out, os.Stderr
	p.in, err = p.cmd.StdinPipe()
	must(l.t, err)
	must(l.t, p.cmd.Start())
	return p
}

// stop ends it and gives when its server had stored each pulse.
func (p *plainProgram) stop(l *lab) map[int64]time.Time {
	l.t.Helper()
	must(l.t, p.in.Close())
	must(l.t, p.cmd.Wait())
	stored := map[int64]time.Time{}
	for {
		var n, at int64
		if _, err := fmt.Fscan(p.out, &n, &at); err != nil {
			return stored
		}
		stored[n] = time.Unix(0, at)
	}
}

// runPlain is the plain program's main function. It gives the exit code.
func runPlain(kubeconfig, dir string) int {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	if err := publishPulses(ctx, kubeconfig, dir); err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		return 1
	}
	return 0
}

// publishPulses publishes pulses until ctx ends, and prints when each was stored.
func publishPulses(ctx context.Context, kubeconfig, dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, MaxPayload: plainPayload,
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer s.Shutdown()
	conn, err := nats.Connect(s.ClientURL(), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "PLAIN", Subjects: []string{"pulse", "other"}})
	if err != nil {
		return err
	}
	// What is not stored is not timed.
	err = watchMaps(ctx, client, func(line []byte) { _, _ = js.PublishAsync("other", bytes.Clone(line)) },
		func(n int64) { _, _ = js.PublishAsync("pulse", fmt.Append(nil, n)) })
	if err != nil {
		return err
	}
	<-js.PublishAsyncComplete()
	return printPulses(context.WithoutCancel(ctx), stream)
}

// printPulses prints each pulse of a stream, and when it was stored.
func printPulses(ctx context.Context, stream jetstream.Stream) error {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter("pulse"))
	if err != nil {
		return err
	}
	reader, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{"pulse"}})
	if err != nil {
		return err
	}
	for range info.State.Subjects["pulse"] {
		m, err := reader.Next()
		if err != nil {
			return err
		}
		about, err := m.Metadata()
		if err != nil {
			return err
		}
		fmt.Println(string(m.Data()), about.Timestamp.UnixNano())
	}
	return nil
}

// watchPulses reports the pulses of a watch of all ConfigMaps.
func watchPulses(ctx context.Context, client kubernetes.Interface, note func(n int64)) error {
	return watchMaps(ctx, client, func([]byte) {}, note)
}

// watchMaps reads the lines of a watch of all ConfigMaps, as the bridge has one, and keeps none.
func watchMaps(ctx context.Context, client kubernetes.Interface, other func(line []byte), note func(n int64)) error {
	for ctx.Err() == nil {
		stream, err := client.CoreV1().RESTClient().Get().Resource("configmaps").Param("watch", "true").Stream(ctx)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		for lines := bufio.NewReaderSize(stream, 4<<20); ; {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				break
			}
			if n, ok := pulseIn(line); ok && bytes.Contains(line[:min(len(line), 300)], []byte(`"name":"pulse"`)) {
				note(n)
			} else {
				other(line)
			}
		}
		stream.Close()
	}
	return nil
}
