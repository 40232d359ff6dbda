package config_test

import (
	"strings"
	"testing"
)

func TestWarnings(t *testing.T) {
	for _, test := range []struct{ name, sink, want string }{
		{"a user in plain text", `nats: {url: "nats://n:4222", user: u, password: p}`, "sinks[0].nats.user: is sent in plain text"},
		{"a token in plain text", `nats: {url: "nats://n:4222", tokenFile: /t}`, "sinks[0].nats.tokenFile: is sent in plain text"},
		{"a user in the URL", `nats: {url: "nats://u:p@n:4222"}`, "sinks[0].nats.url: is sent in plain text"},
		{"PLAIN without TLS", `kafka: {brokers: ["k:9"], sasl: {mechanism: PLAIN, username: u, password: p}}`, "sinks[0].kafka.sasl.mechanism: PLAIN sends"},
		{"a bearer without TLS", `kafka: {brokers: ["k:9"], sasl: {mechanism: OAUTHBEARER, tokenFile: /t}}`, "OAUTHBEARER sends"},
		{"no check of NATS", `nats: {url: "tls://n", tls: {insecureSkipVerify: true}}`, "sinks[0].nats.tls.insecureSkipVerify: accepts any"},
		{"no check of Kafka", `kafka: {brokers: ["k:9"], tls: {insecureSkipVerify: true}}`, "sinks[0].kafka.tls.insecureSkipVerify: accepts any"},

		{"a user by TLS", `nats: {url: "tls://n:4222", user: u, password: p}`, ""},
		{"a user on this machine", `nats: {url: "nats://127.0.0.1:4222", user: u, password: p}`, ""},
		{"a signature", `nats: {url: "nats://n:4222", nkeyFile: /n}`, ""},
		{"SCRAM without TLS", `kafka: {brokers: ["k:9"], sasl: {mechanism: SCRAM-SHA-512, username: u, password: p}}`, ""},
		{"PLAIN by TLS", `kafka: {brokers: ["k:9"], tls: {}, sasl: {mechanism: PLAIN, username: u, password: p}}`, ""},
		{"standard output", `stdout: {}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, w := range mustLoad(t, "sinks: [{name: s, "+test.sink+"}]").Warnings() {
				got = append(got, w.Error())
			}
			text := strings.Join(got, "\n")
			if test.want == "" && text != "" || !strings.Contains(text, test.want) {
				t.Errorf("got %q, want %q", text, test.want)
			}
			if strings.Contains(text, ":p@") {
				t.Errorf("the password is in it: %q", text)
			}
		})
	}
}
