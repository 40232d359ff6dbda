package admin_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestNoDescriptorLeft answers one probe after the other while the process can open nothing more.
func TestNoDescriptorLeft(t *testing.T) {
	url, _ := start(t, admin.Config{})
	var was syscall.Rlimit
	testkit.OK(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	few := was
	few.Cur = 200
	testkit.OK(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	var open []*os.File
	defer func() {
		for _, file := range open {
			file.Close()
		}
		testkit.OK(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	}()
	if code, _, _ := get(t, url+"/healthz", ""); code != http.StatusOK { // it has its reserve by now
		t.Fatal(code)
	}
	http.DefaultClient.CloseIdleConnections()
	for {
		file, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		open = append(open, file)
	}
	open[len(open)-1].Close() // for the client, which is in this process
	open = open[:len(open)-1]
	for probe := range 5 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		testkit.OK(t, err)
		testkit.OK(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
		testkit.OK(t, err)
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("probe %d: %v, %v", probe, response, err)
		}
		_, err = io.Copy(io.Discard, reader) // until the server has closed it
		testkit.OK(t, err)
		conn.Close()
	}
}
