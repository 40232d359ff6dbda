package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubebridge/bridge/internal/settings"
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

// accountDirs are where a pod has the token of its service account.
var accountDirs = []string{
	"/var/run/secrets/kubernetes.io/serviceaccount", "/run/secrets/kubernetes.io/serviceaccount",
}

// validateSecretFile refuses a file with a secret that is the bridge's own identity: it would be
// sent to whatever broker the configuration names. /proc has the environment of the process, and
// other ways to the same files.
func validateSecretFile(ps *settings.Report, path, file string) {
	if file == "" {
		return
	}
	for _, dir := range accountDirs {
		if within(dir, file) {
			ps.Add(path, "a token of the service account is not for brokers: mount a Secret of their own")
			return
		}
	}
	if within("/proc", file) {
		ps.Add(path, "a file of /proc is not for brokers: mount a Secret of their own")
	}
}

// within reports whether a file lies in a directory, by the names as they are written or as the
// links lead.
func within(dir, file string) bool {
	file, err := filepath.Abs(file)
	if err != nil {
		return false
	}
	realDir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		realDir = dir
	}
	realFile, err := filepath.EvalSymlinks(file)
	if err != nil {
		realFile = file
	}
	return below(dir, file) || below(realDir, realFile) || below(dir, realFile)
}

func below(dir, file string) bool {
	return file == dir || strings.HasPrefix(file, dir+string(filepath.Separator))
}

// AllowSecretsVariable allows `secrets: send` where it is true, as the flag --allow-secrets does.
const AllowSecretsVariable = "BRIDGE_ALLOW_SECRETS"

// CheckSecrets returns a Problem for each informer that sends values of Secrets, unless the process
// was allowed to. That is no key of the file: who may edit the file alone must not read Secrets by
// it.
func (c *Config) CheckSecrets(allowed bool) error {
	var problems []error
	for i := range c.Informers {
		if c.Informers[i].Secrets == "send" && !allowed {
			problems = append(problems, c.ProblemAt(fmt.Sprintf("informers[%d].secrets", i),
				"sending values of Secrets takes a second key beside the file: --allow-secrets or %s=true",
				AllowSecretsVariable))
		}
	}
	return errors.Join(problems...)
}
