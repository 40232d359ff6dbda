package app

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
)

// errNoToken is about a configuration that has no place for a token.
var errNoToken = errors.New("there is no token: state.mode is memory, so set admin.tokenFile " +
	"(--token-file)")

// TokenFile is where the token of the admin server lies; own says that the bridge makes it.
func TokenFile(c *config.Config) (file string, own bool, err error) {
	switch {
	case c.Admin.TokenFile != "":
		return c.Admin.TokenFile, false, nil
	case c.State.Mode == "memory":
		return "", false, errNoToken
	default:
		return filepath.Join(c.State.Dir, "admin-token"), true, nil
	}
}

// shortestToken is how many bytes a token has at least, so that nobody guesses it.
const shortestToken = 16

// tokenReader returns what reads the bridge's token, nil where there is none. The token is there
// once provideToken was called.
func tokenReader(c *config.Config) func() (string, error) {
	file, _, err := TokenFile(c)
	if err != nil {
		return nil
	}
	return func() (string, error) {
		token, err := settings.ReadToken(file)
		if err == nil && len(token) < shortestToken {
			return "", fmt.Errorf("the token in %s has %d bytes: want at least %d", file,
				len(token), shortestToken)
		}
		return token, err
	}
}

// provideToken makes the token, where the bridge has to.
func provideToken(c *config.Config, log *slog.Logger) {
	file, own, err := TokenFile(c)
	switch {
	case c.Admin.Address == "" || err != nil:
		return
	case own:
		err = settings.MakeToken(file)
	default:
		_, err = tokenReader(c)()
	}
	if err != nil {
		log.Warn("there is no token, so commands, and readers who need one, are refused",
			"file", file, "err", err)
	}
}
