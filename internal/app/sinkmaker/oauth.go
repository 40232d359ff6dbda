package sinkmaker

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/kubebridge/bridge/config"
)

// tokenSource gets tokens from an identity provider, and hands each out until shortly before its
// end.
type tokenSource struct {
	config *config.OAuth
	http   *http.Client

	mu   sync.Mutex // guards last
	last *oauth2.Token
}

func newTokenSource(c *config.OAuth) *tokenSource {
	return &tokenSource{config: c, http: &http.Client{
		Timeout: 10 * time.Second,
		// The secret goes to the address that the configuration names, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (s *tokenSource) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last.Valid() {
		return last.AccessToken, nil
	}
	secret, err := config.ReadSecret(s.config.ClientSecret, s.config.ClientSecretFile)
	if err != nil {
		return "", err
	}
	grant := clientcredentials.Config{
		ClientID: s.config.ClientID, ClientSecret: string(secret), TokenURL: s.config.TokenURL,
		Scopes: s.config.Scopes,
	}
	token, err := grant.Token(context.WithValue(ctx, oauth2.HTTPClient, s.http))
	if err != nil {
		return "", fmt.Errorf("get a token from %s: %w", s.config.TokenURL, err)
	}
	s.mu.Lock()
	s.last = token
	s.mu.Unlock()
	return token.AccessToken, nil
}
