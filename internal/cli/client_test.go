package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

func TestCommandToAnotherServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>")
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	testkit.OK(t, os.WriteFile(token, []byte("a token of more than 16 bytes"), 0o600))
	address := server.Listener.Addr().String()
	for _, line := range []string{"pause sink lake", "reload", "log-level debug"} {
		t.Run(line+" says what is there", func(t *testing.T) {
			var stderr testkit.Buffer
			args := append(strings.Fields(line), "--admin-address", address, "--token-file", token)
			code := run(t.Context(), args, nil, io.Discard, &stderr)
			want := address + " is not the admin endpoint of a bridge that takes commands: 200 OK"
			if code != ExitRefused || !strings.Contains(stderr.String(), want) {
				t.Errorf("exit code %d, stderr %q", code, stderr.String())
			}
		})
	}
}
