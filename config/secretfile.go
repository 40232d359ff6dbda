package config

import (
	"fmt"
	"os"
	"strings"
)

// ReadSecret is the value of a secret that is given either as itself or by a file (password and passwordFile). Line ends
// after the value in the file are not part of it. It reads the file each time, so a renewed secret is seen.
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
