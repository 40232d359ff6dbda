package kafka

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestTokenSource(t *testing.T) {
	asked, lifetime := 0, 3600
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		id, secret, _ := r.BasicAuth()
		switch {
		case r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka":
			http.Error(w, "what", http.StatusBadRequest)
		case id != "bridge" || secret != "hunter2":
			http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
		default:
			w.Header().Set("content-type", "application/json")
			fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":%d}`, asked, lifetime)
		}
	}))
	defer provider.Close()
	file := filepath.Join(t.TempDir(), "secret")
	testkit.OK(t, os.WriteFile(file, []byte("hunter2\n"), 0o600))
	c := &OAuth{TokenURL: settings.URL(provider.URL), ClientID: "bridge", ClientSecretFile: file, Scopes: []string{"kafka"}}
	t.Run("a token is used until its end", func(t *testing.T) {
		s := newTokenSource(c)
		for range 3 {
			if got, err := s.token(t.Context()); got != "token-1" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		}
	})
	t.Run("a token that ends is renewed", func(t *testing.T) {
		lifetime = 1 // less than the margin before the end
		s := newTokenSource(c)
		first, err := s.token(t.Context())
		testkit.OK(t, err)
		if second, err := s.token(t.Context()); second == first || err != nil {
			t.Errorf("got %q and %q, %v", first, second, err)
		}
	})
	t.Run("a refusal has the reason and not the secret", func(t *testing.T) {
		wrong := *c
		wrong.ClientID = "other"
		_, err := newTokenSource(&wrong).token(t.Context())
		if err == nil || !strings.Contains(err.Error(), "invalid_client") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a redirect is not followed", func(t *testing.T) {
		elsewhere := httptest.NewServer(http.RedirectHandler(provider.URL, http.StatusTemporaryRedirect))
		defer elsewhere.Close()
		before, moved := asked, *c
		moved.TokenURL = settings.URL(elsewhere.URL)
		if got, err := newTokenSource(&moved).token(t.Context()); err == nil || asked != before {
			t.Errorf("got %q", got)
		}
	})
}
