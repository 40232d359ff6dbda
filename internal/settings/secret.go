package settings

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ReadSecret is the value of a secret that is given either as itself or by a file (password and
// passwordFile). Line ends after the value in the file are not part of it. It reads the file each
// time, so a renewed secret is seen.
func ReadSecret(value Secret, file string) (Secret, error) {
	if file == "" {
		return value, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", fmt.Errorf("read secret: %s is empty", file)
	}
	return Secret(text), nil
}

// ReadToken reads a token from its file, each time that it is called.
func ReadToken(file string) (string, error) {
	token, err := ReadSecret("", file)
	return string(token), err
}

// MakeToken puts a new token into a file that only the bridge's own user can read. A file that
// holds a token keeps it.
func MakeToken(file string) error {
	if token, err := ReadToken(file); err == nil && token != "" {
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
