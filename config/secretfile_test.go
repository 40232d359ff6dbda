package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
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
			"admin.tokenFile":                            "admin: {tokenFile: FILE}",
			"sinks[0].nats.passwordFile":                 "sinks: [{name: n, nats: {username: u, passwordFile: FILE}}]",
			"sinks[0].nats.tokenFile":                    "sinks: [{name: n, nats: {tokenFile: FILE}}]",
			"sinks[0].nats.credsFile":                    "sinks: [{name: n, nats: {credsFile: FILE}}]",
			"sinks[0].nats.nkeyFile":                     "sinks: [{name: n, nats: {nkeyFile: FILE}}]",
			"sinks[0].kafka.sasl.passwordFile":           `sinks: [{name: k, kafka: {brokers: ["k:9"], sasl: {mechanism: PLAIN, username: u, passwordFile: FILE}}}]`,
			"sinks[0].kafka.sasl.oauth.clientSecretFile": `sinks: [{name: k, kafka: {brokers: ["k:9"], sasl: {mechanism: OAUTHBEARER, oauth: {tokenURL: "https://i/t", clientID: a, clientSecretFile: FILE}}}}]`,
			"sinks[0].http.tokenFile":                    `sinks: [{name: h, http: {url: "https://h", tokenFile: FILE}}]`,
			"sinks[0].kafka.sasl.tokenFile":              `sinks: [{name: k, kafka: {brokers: ["k:9"], sasl: {mechanism: OAUTHBEARER, tokenFile: FILE}}}]`,
		} {
			_, err := load(t, strings.ReplaceAll(text, "FILE", file))
			if got := err != nil && strings.Contains(err.Error(), path+": "); got != refused || err != nil && !refused {
				t.Errorf("%s: %s: refused: %v (%v)", path, file, got, err)
			}
		}
	}
}

func TestSendingSecrets(t *testing.T) {
	t.Run("the value of a variable is not looked for within words", func(t *testing.T) {
		t.Setenv("MODE", "send")
		c := mustLoad(t, "informers:\n  - {name: a, resources: [secrets], secrets: \"${MODE}\"}\n")
		err := c.CheckSecrets(false)
		if err == nil || !strings.Contains(err.Error(), "secrets: sending values") {
			t.Errorf("got %v", err)
		}
	})
	c := mustLoad(t, "informers:\n  - {name: a, resources: [pods]}\n  - {name: b, resources: [secrets], secrets: send}\n")
	if err := c.CheckSecrets(true); err != nil {
		t.Errorf("it is not allowed: %v", err)
	}
	err := c.CheckSecrets(false)
	if got := settings.Problems(err); len(got) != 1 || !strings.Contains(got[0].Error(), "informers[1].secrets: sending values of Secrets takes a second key") {
		t.Errorf("got %q", got)
	}
	if err := mustLoad(t, "").CheckSecrets(false); err != nil {
		t.Errorf("the default: %v", err)
	}
}

func TestMaskedURLs(t *testing.T) {
	const m = settings.Masked
	for url, want := range map[string]string{
		"":                      "",
		"nats://h:4222":         "nats://h:4222",
		"nats://u:p@h:4222":     "nats://" + m + "@h:4222",
		"nats://u:p,w@h:4222":   "nats://" + m + "@h:4222",
		"nats://u:p@w,x@h":      "nats://" + m + "@h",
		"nats://a,nats://u:p@h": "nats://" + m + "@h", // which is refused: one URL each
		"nats://a:1,u:p@b:2":    "nats://" + m + "@b:2",
		"u:p,w@h":               m + "@h",

		"https://u:p@h/in?token=t&key=k":       "https://" + m + "@h/in?token=" + m + "&key=" + m,
		"https://h/a?sig=s;u=@x":               "https://" + m + "@x", // too much rather than too little
		"https://h?secret":                     "https://h?" + m,
		"https://h/#token=t":                   "https://h/#" + m,
		"https://h/services/T0/B0/key":         "https://h/services/" + m,
		"https://h/api/webhooks/1/key?wait=1":  "https://h/api/webhooks/" + m,
		"https://h/webhookb2/g@t/In/key/other": "https://h/webhookb2/" + m,
		"https://h/hooks/key":                  "https://h/hooks/" + m,
		"https://h/events/services":            "https://h/events/services",
	} {
		if got := settings.URL(url).String(); got != want {
			t.Errorf("%s is printed as %s, want %s", url, got, want)
		}
	}
}

// TestReferences puts a secret of the environment into keys that are none for secrets.
func TestReferences(t *testing.T) {
	t.Setenv("LEAKED", "hunter2")
	t.Setenv("PACE", "2s")
	const text = `
cluster: ${LEAKED}
shutdownTimeout: ${PACE}
state: {dir: "/var/${LEAKED}/$${x}"}
informers:
  - {name: a, resources: [pods, "${LEAKED}"], labelSelector: app=b}
sinks:
  - {name: n, nats: {servers: ["nats://${LEAKED}:4222"], username: u, password: "${LEAKED}"}}
  - {name: o, nats: {servers: ["nats://u:${LEAKED}@h"], token: "x${LEAKED}"}}
  - {name: k, kafka: {brokers: ["${LEAKED}:9092"], createTopics: {config: {cleanup.policy: "${LEAKED}"}}}}
`
	c := mustLoad(t, text)
	if c.Cluster != "hunter2" || c.State.Dir != "/var/hunter2/${x}" || c.Sinks[0].NATS.Password != "hunter2" {
		t.Fatalf("the values are lost: %+v", c)
	}
	printed := c.String()
	if strings.Contains(printed, "hunter2") {
		t.Errorf("what a variable holds is printed:\n%s", printed)
	}
	for _, want := range []string{
		"cluster: ${LEAKED}\n", "shutdownTimeout: ${PACE}\n", "dir: /var/${LEAKED}/$${x}\n", "- ${LEAKED}\n",
		"- nats://${LEAKED}:4222\n", "password: '${LEAKED}'\n", "- nats://" + settings.Masked + "@h\n",
		"token: '" + settings.Masked + "'\n", "- ${LEAKED}:9092\n", "cleanup.policy: ${LEAKED}\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("no %q in\n%s", want, printed)
		}
	}
	t.Run("a variable of the key itself wins", func(t *testing.T) {
		t.Setenv("BRIDGE_CLUSTER", "given")
		t.Setenv("BRIDGE_INFORMERS_A_RESOURCES", "nodes,services")
		printed := mustLoad(t, text).String()
		if !strings.Contains(printed, "cluster: given\n") || !strings.Contains(printed, "- services\n") {
			t.Errorf("the values are not those that count:\n%s", printed)
		}
	})
	t.Run("problems", func(t *testing.T) {
		for _, wrong := range []string{
			`sinks: [{name: k, kafka: {brokers: ["${LEAKED}"]}}]`,
			`admin: {address: "${LEAKED}"}`,
			`log: {level: "${LEAKED}"}`,
			`informers: [{name: "${LEAKED}!", resources: [pods]}]`,
			`informers: [{name: a, resources: [pods], filter: "${LEAKED}("}]`,
			`informers: [{name: a, resources: [pods], labelSelector: "${LEAKED}=(="}]`,
			`sinks: [{name: n, nats: {subject: "${LEAKED} *"}}]`,
		} {
			_, err := load(t, wrong)
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", wrong, err)
			}
		}
		err := config.NewGuard(mustLoad(t, "cluster: ${LEAKED}")).Check(mustLoad(t, "cluster: other"))
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), `"${LEAKED}"`) {
			t.Errorf("a reload: %v", err)
		}
	})
}
