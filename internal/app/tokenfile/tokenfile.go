// Package tokenfile makes and reads the files with tokens that open what a bridge serves: its admin
// server, and its embedded NATS server.
package tokenfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubebridge/bridge/config"
)

// errNoToken is about a configuration that has no place for a token.
var errNoToken = errors.New("there is no token: state.mode is memory, so set admin.tokenFile " +
	"(--token-file)")

// Of is where the token of a configuration lies; own says that the bridge makes it.
func Of(c *config.Config) (file string, own bool, err error) {
	switch {
	case c.Admin.TokenFile != "":
		return c.Admin.TokenFile, false, nil
	case c.State.Mode == "memory":
		return "", false, errNoToken
	default:
		return filepath.Join(c.State.Dir, "admin-token"), true, nil
	}
}

// Read reads a token.
func Read(file string) (string, error) {
	token, err := config.ReadSecret("", file)
	return string(token), err
}

// Make puts a token into a file, for the bridge's own user only, where there is none yet.
func Make(file string) error {
	if token, err := Read(file); err == nil && token != "" {
		// it was made so; a volume may have been given to a group since
		return os.Chmod(file, 0o600)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!strings.Contains(err.Error(), "is empty") {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".token-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // for when it could not be renamed
	_, err = fmt.Fprintln(temp, rand.Text()+rand.Text())
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}

// shortestToken is how many bytes a token has at least, so that nobody guesses it.
const shortestToken = 16

// Reader returns what reads the bridge's token, nil where there is none. The token is there once
// Provide was called.
func Reader(c *config.Config) func() (string, error) {
	file, _, err := Of(c)
	if err != nil {
		return nil
	}
	return func() (string, error) {
		token, err := Read(file)
		if err == nil && len(token) < shortestToken {
			return "", fmt.Errorf("the token in %s has %d bytes: want at least %d", file,
				len(token), shortestToken)
		}
		return token, err
	}
}

// Provide makes the token, where the bridge has to.
func Provide(c *config.Config, log *slog.Logger) {
	file, own, err := Of(c)
	switch {
	case c.Admin.Address == "" || err != nil:
		return
	case own:
		err = Make(file)
	default:
		_, err = Reader(c)()
	}
	if err != nil {
		log.Warn("there is no token, so commands, and readers who need one, are refused",
			"file", file, "err", err)
	}
}
