package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretFiles(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self", link); err != nil {
		t.Fatal(err)
	}
	for file, refused := range map[string]bool{
		"/var/run/secrets/kubernetes.io/serviceaccount/token":                   true,
		"/run/secrets/kubernetes.io/serviceaccount/token":                       true,
		"/var/run/secrets/../secrets/kubernetes.io/serviceaccount/..data/token": true,
		"/proc/self/environ":                             true,
		link + "/environ":                                true,
		"/var/run/secrets/kafka/token":                   false,
		"/etc/bridge/secrets/nats/password":              false,
		"/var/run/secrets/kubernetes.io/serviceaccounts": false,
	} {
		for path, text := range map[string]string{
			"admin.tokenFile":                  "admin: {tokenFile: FILE}",
			"sinks[0].nats.passwordFile":       "sinks: [{name: n, nats: {user: u, passwordFile: FILE}}]",
			"sinks[0].nats.tokenFile":          "sinks: [{name: n, nats: {tokenFile: FILE}}]",
			"sinks[0].nats.credsFile":          "sinks: [{name: n, nats: {credsFile: FILE}}]",
			"sinks[0].nats.nkeyFile":           "sinks: [{name: n, nats: {nkeyFile: FILE}}]",
			"sinks[0].kafka.sasl.passwordFile": `sinks: [{name: k, kafka: {brokers: ["k:9"], sasl: {mechanism: PLAIN, username: u, passwordFile: FILE}}}]`,
			"sinks[0].kafka.sasl.tokenFile":    `sinks: [{name: k, kafka: {brokers: ["k:9"], sasl: {mechanism: OAUTHBEARER, tokenFile: FILE}}}]`,
		} {
			_, err := load(t, strings.ReplaceAll(text, "FILE", file))
			if got := err != nil && strings.Contains(err.Error(), path+": "); got != refused || err != nil && !refused {
				t.Errorf("%s: %s: refused: %v (%v)", path, file, got, err)
			}
		}
	}
}

func TestSendingSecrets(t *testing.T) {
	c := mustLoad(t, "informers:\n  - {name: a, resources: [pods]}\n  - {name: b, resources: [secrets], secrets: send}\n")
	if err := c.CheckSecrets(true); err != nil {
		t.Errorf("it is not allowed: %v", err)
	}
	err := c.CheckSecrets(false)
	if got := problemsOf(err); len(got) != 1 || !strings.Contains(got[0], "informers[1].secrets: sending values of Secrets takes a second key") {
		t.Errorf("got %q", got)
	}
	if err := mustLoad(t, "").CheckSecrets(false); err != nil {
		t.Errorf("the default: %v", err)
	}
}
