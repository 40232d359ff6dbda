package nats_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// liar stands between a sink and a server, and changes what the server says.
type liar struct {
	listener net.Listener
	target   string
	wire     wire

	mu    sync.Mutex
	about *regexp.Regexp // the subjects of the messages to lie about
	times int
	lie   func(frame message) []byte
	lied  int // answers that were other than the server's
}

// message is what a server sends on a subject.
type message struct {
	line    string // without its end
	payload []byte
}

// saying is the message with another payload.
func (m message) saying(payload string) []byte {
	fields := strings.Fields(m.line)
	head := strings.Join(fields[:len(fields)-1], " ")
	return fmt.Appendf(nil, "%s %d\r\n%s\r\n", head, len(payload), payload)
}

func newLiar(t *testing.T, target string) *liar {
	t.Helper()
	return newLiarOver(t, plain, strings.TrimPrefix(target, "nats://"))
}

func newLiarOver(t *testing.T, w wire, target string) *liar {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{listener: listener, target: target, wire: w}
	var running sync.WaitGroup
	running.Go(func() { l.accept(&running) })
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return l
}

func (l *liar) use(c *nats.Options) {
	c.Servers = addresses(l.wire.scheme + "://" + l.listener.Addr().String())
	c.TLS, c.TLSFirst = l.wire.settings, l.wire.first
}

// Subjects of what a server says to a sink.
var (
	acks    = regexp.MustCompile(`^\S+ _INBOX\.\S+\.[0-9a-z]+-[0-9a-z]+ `)
	answers = regexp.MustCompile(`^\S+ _INBOX\.[^ .]+\.[^ .-]+ `) // of the API
)

func (l *liar) answer(about *regexp.Regexp, times int, lie func(message) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.about, l.times, l.lie, l.lied = about, times, lie, 0
}

func (l *liar) lies() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lied
}

func (l *liar) take(line string) func(message) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times == 0 || !l.about.MatchString(line) {
		return nil
	}
	l.times--
	return l.lie
}

// reply gives what the liar says in place of a frame, and counts it where that is another one.
func (l *liar) reply(lie func(message) []byte, m message, frame []byte) []byte {
	said := lie(m)
	if !bytes.Equal(said, frame) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lied++
	}
	return said
}

// requireLies fails where the liar was not asked, or had nothing to change: then the test shows
// nothing. Call it before the next answer.
func (l *liar) requireLies(t *testing.T) {
	t.Helper()
	if l.lies() == 0 {
		t.Error("it never lied")
	}
}

func (l *liar) accept(running *sync.WaitGroup) {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		running.Go(func() { l.join(from, to, running) })
	}
}

// join hands on between the client and the server, until one of them ends the connection.
func (l *liar) join(from, to net.Conn, running *sync.WaitGroup) {
	end := func() { _, _ = from.Close(), to.Close() }
	defer end()
	client, out, in, err := l.wire.begin(from, to)
	if err != nil {
		return
	}
	running.Go(func() { defer end(); _, _ = io.Copy(to, client) })
	l.carry(out, bufio.NewReader(in))
}

// carry hands on what the server says.
func (l *liar) carry(to io.Writer, from *bufio.Reader) {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return
		}
		frame, m := []byte(line), message{line: strings.TrimRight(line, "\r\n")}
		if strings.HasPrefix(line, "MSG ") || strings.HasPrefix(line, "HMSG ") {
			size, _ := strconv.Atoi(m.line[strings.LastIndexByte(m.line, ' ')+1:])
			m.payload = make([]byte, size+2)
			if _, err := io.ReadFull(from, m.payload); err != nil {
				return
			}
			frame, m.payload = append(frame, m.payload...), m.payload[:size]
			if lie := l.take(m.line); lie != nil {
				frame = l.reply(lie, m, frame)
			}
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// say gives a lie that says this in place of the server.
func say(payload string) func(message) []byte {
	return func(m message) []byte { return m.saying(payload) }
}

func raw(frame string) func(message) []byte {
	return func(message) []byte { return []byte(frame) }
}

// twice says it two times.
func twice(m message) []byte { return bytes.Repeat(m.saying(string(m.payload)), 2) }

// contradict says what the server says, and an error, in this order or the other one.
func contradict(isErrorFirst bool) func(message) []byte {
	return func(m message) []byte {
		truth, lie := m.saying(string(m.payload)), m.saying(`{"error":{"code":503,"err_code":10077,"description":"x"}}`)
		if isErrorFirst {
			truth, lie = lie, truth
		}
		return append(truth, lie...)
	}
}

// late says each message behind the next one.
func late() func(message) []byte {
	var held []byte
	return func(m message) []byte {
		frame := append(m.saying(string(m.payload)), held...)
		if held != nil {
			held = nil
			return frame
		}
		held = frame
		return nil
	}
}

// announcements are messages that the client library has no memory for, or which end the process.
func announcements() map[string]func(message) []byte {
	return map[string]func(message) []byte{
		"a message of 2 GiB":      raw("MSG _INBOX.x 1 2147483647\r\n"),
		"a message of 2^62 bytes": raw("MSG _INBOX.x 1 4611686018427387904\r\n"),
		"a message of 2^70 bytes": raw("MSG _INBOX.x 1 1180591620717411303424\r\n"),
		"a message of -1 bytes":   raw("MSG _INBOX.x 1 -1\r\n"),
		"headers of 2 GiB":        raw("HMSG _INBOX.x 1 12 2147483647\r\nNATS/1.0\r\n"),
		"2 GiB behind a tab":      raw("MSG\t_INBOX.x 1 2147483647\r\n"),
		"2 GiB before the end":    raw("MSG _INBOX.x\r1 1 2147483647 5\n"),
		"2 GiB in an empty INFO": raw("INFO \nMSG x 1 100\r\n" +
			"MSG _INBOX.x 1 2147483647\r\n"),
		"2 GiB in an empty error": raw("-ERR \nMSG x 1 100\r\n" +
			"MSG _INBOX.x 1 2147483647\r\n"),
	}
}

// generalLies are about any message.
func generalLies() map[string]func(message) []byte {
	large := strings.Repeat("x", 1<<20)
	lies := announcements()
	maps.Copy(lies, map[string]func(message) []byte{
		"silence":        raw(""),
		"late":           late(),
		"twice":          twice,
		"and an error":   contradict(false),
		"after an error": contradict(true),
		"nothing":        say(""),
		"no JSON":        say("\xff\xfe{{{"),
		"half an answer": func(m message) []byte { return m.saying(string(m.payload[:len(m.payload)/2])) },
		"1 MiB":          say(large),
		"an error of 1 MiB": say(`{"error":{"code":500,"err_code":10077,"description":"` +
			large + `"}}`),
		"an error of the future": say(`{"error":{"code":999,"err_code":65535,"description":"x"}}`),
		"an error that is none":  say(`{"error":7}`),
		"nested without end":     say(strings.Repeat(`{"error":`, 20_000)),
		"an error of the server": raw("-ERR 'Permissions Violation for Publish to " +
			"\"k8s.test.a\"'\r\n"),
		"what is no NATS":           raw("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"an INFO without end":       raw("INFO {" + strings.Repeat(" ", 2<<20)),
		"an INFO of another server": raw(`INFO {"server_id":"x","max_payload":-5,"headers":false,"connect_urls":["a","b"]}` + "\r\n"),
	})
	return lies
}

// answerLies are the general lies about what an answer says, not about the protocol below it.
func answerLies() map[string]func(message) []byte {
	all, lies := generalLies(), map[string]func(message) []byte{}
	for _, name := range []string{
		"silence", "twice", "and an error", "nothing", "no JSON", "half an answer",
		"an error that is none", "an INFO of another server",
	} {
		lies[name] = all[name]
	}
	return lies
}

func ackLies() map[string]func(message) []byte {
	return map[string]func(message) []byte{
		"said twice":                    twice,
		"of another stream":             say(`{"stream":"OTHER","seq":7}`),
		"of a stream without a name":    say(`{"stream":"","seq":7}`),
		"of no sequence":                say(`{"stream":"K8S","seq":0}`),
		"of a negative sequence":        say(`{"stream":"K8S","seq":-7}`),
		"of sequence 1":                 say(`{"stream":"K8S","seq":1}`),
		"of the last sequence there is": say(`{"stream":"K8S","seq":18446744073709551615}`),
		"of a sequence beyond numbers": say(`{"stream":"K8S","seq":` + strings.Repeat("9", 300) +
			`}`),
		"of a sequence that is far away": say(`{"stream":"K8S","seq":2000000000}`),
		"that the fence is lost":         say(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"K8S","seq":0}`),
		"of another expected stream":     say(`{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"}}`),
	}
}
