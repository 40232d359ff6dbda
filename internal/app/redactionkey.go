package app

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// keyFileKey is where the configuration names the key's file.
const keyFileKey = "redaction.keyFile"

// keyFromFile makes the redactor of the configured file; nil where none is configured. Its errors
// have the place in the configuration.
func keyFromFile(c *config.Config) (*resource.Redactor, error) {
	file := c.Redaction.KeyFile
	if file == "" {
		return nil, nil
	}
	key, err := config.ReadSecret("", file)
	if err != nil {
		remedy := ""
		if errors.Is(err, fs.ErrNotExist) {
			remedy = fmt.Sprintf("; create it once with `openssl rand -hex 32 > %s`, and give "+
				"every replica the same one", file)
		}
		return nil, c.ProblemAt(keyFileKey, "%v%s", err, remedy)
	}
	redactor, err := resource.NewRedactor([]byte(key))
	if err != nil {
		return nil, c.ProblemAt(keyFileKey, "%s: %v", file, err)
	}
	return redactor, nil
}

// redactorOf is that of the configured file, else that of the state directory.
func redactorOf(c *config.Config, db *store.DB) (*resource.Redactor, error) {
	if redactor, err := keyFromFile(c); err != nil || redactor != nil {
		return redactor, err
	}
	key, err := db.Database().Identity().Secret()
	if err != nil {
		return nil, err
	}
	return resource.NewRedactor(key)
}

// forgetOwnKey removes the state directory's own key where the configuration names a file: who
// reads a backup of the directory could guess values with it.
func forgetOwnKey(c *config.Config, db *store.DB) error {
	if c.Redaction.KeyFile == "" {
		return nil
	}
	return db.Database().Identity().ForgetSecret()
}
