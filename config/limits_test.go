package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
)

func mustLoadText(t *testing.T, yaml string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Options{File: "bridge.yaml", Data: []byte(yaml)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func problemsOf(err error) (list []string) {
	for _, p := range settings.Problems(err) {
		list = append(list, p.Error())
	}
	return list
}

const guarded = `
informers:
  - {name: a, resources: [configmaps, secrets], redact: [data.dsn, spec.x], drop: [status.y], redactEnv: true}
  - {name: b, resources: [pods]}
sinks:
  - {name: lake, kafka: {brokers: ["k-0:9092", "k-1:9092"], tls: {}, topic: "{informer}.{resource}"}}
  - {name: audit, nats: {servers: ["tls://n:4222"], stream: {name: "K8S-{informer}"}}}
  - {name: web, http: {url: "https://w", tokenFile: /secrets/web, tls: {caFile: /ca, serverName: w}}}
`

func TestLoosening(t *testing.T) {
	const a, b = "{name: a, resources: [configmaps, secrets], ", "{name: b, resources: [pods]}"
	const all = "redact: [data.dsn, spec.x], drop: [status.y], redactEnv: true"
	const lake = `{brokers: ["k-0:9092", "k-1:9092"], tls: {}, topic: "{informer}.{resource}"}`
	for _, test := range []struct {
		name        string
		replace, by string
		problems    []string
	}{
		{"sends Secrets", a, a + "secrets: send, ", []string{"informers[0].secrets: sending values of Secrets"}},
		{"redacts less", "data.dsn, ", "", []string{"informers[0].redact: sending what is at data.dsn"}},
		{"drops less", "[status.y]", "[]", []string{"informers[0].drop: sending what is at status.y"}},
		{
			"redacts what it dropped", all, "redact: [data.dsn, spec.x, status.y], redactEnv: true",
			[]string{"informers[0].drop: sending what is at status.y"},
		},
		{"shows the environment", "redactEnv: true", "redactEnv: false", []string{"informers[0].redactEnv: sending environment"}},
		{
			"selects what another redacts", b, `{name: b, resources: [pods, cm], ` + strings.Replace(all, "data.dsn, ", "", 1) + "}",
			[]string{"informers[1].redact: sending what is at data.dsn"},
		},
		{"has a new informer without redaction", b, b + "\n  - {name: c, resources: [configmaps]}", []string{
			"informers[2].redact: sending what is at data.dsn", "informers[2].redact: sending what is at spec.x",
			"informers[2].drop: sending what is at status.y", "informers[2].redactEnv",
		}},
		{"renames an informer", "{name: a, ", "{name: z, redactEnv: true, resources: [secrets]}\n  - {name: a, ", []string{
			"informers[0].redact: sending what is at data.dsn", "informers[0].redact: sending what is at spec.x",
			"informers[0].drop: sending what is at status.y",
		}},
		{"sends to another broker", `"k-1:9092"`, `"evil:9092"`, []string{"sinks[0]: sending to evil:9092, where no sink sends now"}},
		{"sends to another port", "n:4222", "n:4223", []string{"sinks[1]: sending to n:4223"}},
		{"has a new sink elsewhere", lake + "}", lake + `}
  - {name: c, nats: {servers: ["tls://n:4222", "tls://evil:4222"], stream: {name: C}, subject: "c.{name}"}}`, []string{"sinks[1]: sending to evil:4222"}},
		{"has a new sink on standard output", lake + "}", lake + "}\n  - {name: c, stdout: {}}", []string{"sinks[1]: sending to standard output"}},
		{"sends in plain text", ", tls: {}", "", []string{
			"sinks[0]: sending to k-0:9092 by plain text, where TLS is used now", "sinks[0]: sending to k-1:9092 by plain text",
		}},
		{
			"takes any certificate", `["tls://n:4222"]`, `["tls://n:4222"], tls: {insecureSkipVerify: true}`,
			[]string{"sinks[1]: sending to n:4222 by TLS that takes any certificate, where TLS is used now"},
		},
		{"sends another file", "/secrets/web", "/other", []string{
			"sinks[2].http.tokenFile: sending what is in /other to w:443, where it is not used now,",
		}},
		{"sends the file of another sink", "tls: {}", "tls: {}, sasl: {mechanism: PLAIN, username: u, passwordFile: /secrets/web}", []string{
			"sinks[0].kafka.sasl.passwordFile: sending what is in /secrets/web to k-0:9092", "to k-1:9092",
		}},
		{"has a new sink with another file", lake + "}", lake + `}
  - {name: c, http: {url: "https://w", tokenFile: /other, tls: {caFile: /ca, serverName: w}}}`, []string{"sinks[1].http.tokenFile: sending what is in /other"}},
		{"trusts another authority", "/ca", "/other", []string{"sinks[2]: checking the certificate of w:443 by another caFile or serverName"}},
		{"trusts the authorities of the system", "caFile: /ca, ", "", []string{"sinks[2]: checking the certificate of w:443"}},
		{"takes the certificate of another name", "serverName: w", "serverName: evil", []string{"sinks[2]: checking the certificate of w:443"}},

		{"has no token", "tokenFile: /secrets/web, ", "", nil},
		{"names the same file in another way", "/secrets/web", "/secrets/./web", nil},
		{"has a new sink with the same file", lake + "}", lake + `}
  - {name: c, http: {url: "https://w", tokenFile: /secrets/web, tls: {caFile: /ca, serverName: w}}}`, nil},
		{"redacts more", "redact: [", "redact: [spec.z, ", nil},
		{"drops what it redacted", all, "redact: [data.dsn], drop: [status.y, spec.x], redactEnv: true", nil},
		{"has a new informer with all of it", b, b + "\n  - {name: c, resources: [nodes], " + all + "}", nil},
		{"loses an informer", "\n  " + "- " + b, "", nil},
		{"has a new sink at the same place", lake + "}", lake + `}
  - {name: c, kafka: {brokers: ["k-1:9092"], topic: c, tls: {}}}`, nil},
		{"has one broker less", `, "k-1:9092"`, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := strings.Replace(guarded, test.replace, test.by, 1)
			if changed == guarded {
				t.Fatal("the test changes nothing")
			}
			got := problemsOf(config.NewGuard(mustLoadText(t, guarded)).Check(mustLoadText(t, changed)))
			if !slices.EqualFunc(got, test.problems, strings.Contains) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.problems, "\n"))
			}
			for _, p := range got {
				if !strings.Contains(p, "restart the bridge") {
					t.Errorf("it does not say what to do: %s", p)
				}
			}
		})
	}
}

// TestLooseningBySteps takes an informer out by one reload, and brings it back by another.
func TestLooseningBySteps(t *testing.T) {
	without := strings.Split(guarded, "  - {name: a")[0] + "  - {name: b, resources: [pods]}\n" +
		guarded[strings.Index(guarded, "sinks:"):]
	back := strings.Replace(without, "  - {name: b", "  - {name: a, resources: [secrets], secrets: send}\n  - {name: b", 1)
	guard, second := config.NewGuard(mustLoadText(t, guarded)), mustLoadText(t, without)
	if err := guard.Check(second); err != nil {
		t.Fatalf("an informer can't be taken out: %v", err)
	}
	guard.SetRunning(second)
	got := problemsOf(guard.Check(mustLoadText(t, back)))
	for _, want := range []string{"informers[0].secrets", "data.dsn", "status.y", "redactEnv"} {
		if !slices.ContainsFunc(got, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("no problem with %s, but %q", want, got)
		}
	}
	if err := guard.Check(mustLoadText(t, guarded)); err != nil {
		t.Errorf("it can't be brought back as it was: %v", err)
	}
}

// TestLooseningByVariables has the environment of the process sent, which may hold passwords.
func TestLooseningByVariables(t *testing.T) {
	t.Setenv("PASSWORD", "hunter2")
	t.Setenv("SITE", "here")
	const sink = "  - {name: %s, nats: {servers: [\"tls://n:4222\"], username: u, password: \"${PASSWORD}\", stream: {name: %s}, subject: \"%s\"}}\n"
	running := "sinks:\n" + fmt.Sprintf(sink, "a", "A", "a.${SITE}.{name}")
	for _, test := range []struct {
		name, text string
		problems   []string
	}{
		{"in a subject", strings.Replace(running, "${SITE}", "${PASSWORD}", 1), []string{
			"sinks[0].nats.subject: using ${PASSWORD}, which this key did not use before,",
		}},
		{"beside another in it", strings.Replace(running, "${SITE}", "${SITE}-${PASSWORD}", 1), []string{
			"sinks[0].nats.subject: using ${PASSWORD}, which this key did not use before,",
		}},
		{"in a key that had none", strings.Replace(running, "name: A", "name: \"A-${SITE}\"", 1), []string{
			"sinks[0].nats.stream.name: using ${SITE}, which this key did not use before,",
		}},
		{"in a list", "informers: [{name: i, resources: [pods, \"${SITE}\"]}]\n" + running, []string{
			"informers[0].resources[1]: using ${SITE}, which this key did not use before,",
		}},

		{"not at all", strings.Replace(running, "${SITE}", "there", 1), nil},
		{"as text", "informers: [{name: i, resources: [pods], filter: \"'$${PASSWORD}' == object.x\"}]\n" + running, nil},
		{"in the same keys of another sink", strings.Replace(running, "sinks:\n", "sinks:\n"+
			fmt.Sprintf(sink, "b", "B", "b.${SITE}.{name}"), 1), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := problemsOf(config.NewGuard(mustLoadText(t, running)).Check(mustLoadText(t, test.text)))
			if !slices.EqualFunc(got, test.problems, strings.Contains) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.problems, "\n"))
			}
		})
	}
	t.Run("it can be brought back", func(t *testing.T) {
		guard, without := config.NewGuard(mustLoadText(t, running)), mustLoadText(t, strings.Replace(running, "${SITE}", "x", 1))
		if err := guard.Check(without); err != nil {
			t.Fatal(err)
		}
		guard.SetRunning(without)
		if err := guard.Check(mustLoadText(t, running)); err != nil {
			t.Error(err)
		}
	})
}
