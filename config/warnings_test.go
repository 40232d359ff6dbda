package config_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

// The first names that somebody makes take all the topics and streams that there may be, so the
// file has to say how many.
func TestLimitOfChosenNames(t *testing.T) {
	const topic, stream = "sinks[0].kafka.topic: whoever writes an object chooses {attributes.team}, and each value makes " +
		"a topic: set maxTopics",
		"sinks[0].nats.stream.name: whoever writes an object chooses {name}, and each value makes a " +
			"stream: set maxStreams"
	for _, test := range []struct{ name, sink, want string }{
		{"a topic", `kafka: {brokers: ["k:9"], topic: "{attributes.team}", createTopics: {}}`, topic},
		{"dead letters", `kafka: {brokers: ["k:9"], deadLetterTopic: "dead.{uid}", createTopics: {}}`, "sinks[0].kafka.deadLetterTopic: whoever"},
		{"a stream", `nats: {subject: "k.{name}", stream: {name: "K-{name}"}}`, stream},
		{"a topic with a limit", `kafka: {brokers: ["k:9"], topic: "{attributes.team}", maxTopics: 1000, createTopics: {}}`, ""},
		{"a topic that the bridge does not make", `kafka: {brokers: ["k:9"], topic: "{attributes.team}"}`, ""},
		{"a topic for each namespace", `kafka: {brokers: ["k:9"], topic: "{namespace}", createTopics: {}}`, ""},
		{"a stream with a limit", `nats: {subject: "k.{name}", stream: {name: "K-{name}", maxStreams: 9}}`, ""},
		{"a stream that the bridge does not make", `nats: {subject: "k.{name}", stream: {name: "K-{name}", manage: verify}}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := config.Load(config.Options{Data: []byte("informers: [{name: i, resources: [pods], attributes: {team: metadata.labels.team}}]\n" +
				"sinks: [{name: s, " + test.sink + "}]")})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct{ name, sink, want string }{
		{"a user in plain text", `nats: {servers: ["nats://n:4222"], username: u, password: p}`, "sinks[0].nats.username: is sent in plain text"},
		{"a token in plain text", `nats: {servers: ["nats://n:4222"], tokenFile: /t}`, "sinks[0].nats.tokenFile: is sent in plain text"},
		{"a user in the URL", `nats: {servers: ["nats://u:p@n:4222"]}`, "sinks[0].nats.servers: is sent in plain text"},
		{"PLAIN without TLS", `kafka: {brokers: ["k:9"], sasl: {mechanism: PLAIN, username: u, password: p}}`, "sinks[0].kafka.sasl.mechanism: PLAIN sends"},
		{"a bearer without TLS", `kafka: {brokers: ["k:9"], sasl: {mechanism: OAUTHBEARER, tokenFile: /t}}`, "OAUTHBEARER sends"},
		{"a client's secret", `kafka: {brokers: ["k:1"], tls: {}, sasl: {mechanism: OAUTHBEARER, oauth: {tokenURL: "http://i/t", clientID: a, clientSecret: b}}}`, "sinks[0].kafka.sasl.oauth.tokenURL: the client's secret is sent in plain text"},
		{"no check of NATS", `nats: {servers: ["tls://n"], tls: {insecureSkipVerify: true}}`, "sinks[0].nats.tls.insecureSkipVerify: accepts any"},
		{"no check of Kafka", `kafka: {brokers: ["k:9"], tls: {insecureSkipVerify: true}}`, "sinks[0].kafka.tls.insecureSkipVerify: accepts any"},
		{"a topic for each object", `kafka: {brokers: ["k:9"], topic: "k8s.{name}"}`, "sinks[0].kafka.topic: {name} makes a topic for each object: events for more than 1000"},
		{"a topic for each label", `kafka: {brokers: ["k:9"], topic: "team.{attributes.team}", maxTopics: 9}`, "whoever writes an object may choose {attributes.team}"},
		{"dead letters of each object", `kafka: {brokers: ["k:9"], deadLetterTopic: "dead.{uid}"}`, "sinks[0].kafka.deadLetterTopic: {uid} makes a topic"},
		{"a stream for each object", `nats: {subject: "k.{name}", stream: {name: "K-{name}", maxStreams: 9}}`, "sinks[0].nats.stream.name: {name} makes a stream"},

		{"a topic for each namespace", `kafka: {brokers: ["k:9"], topic: "k8s.{namespace}.{resource}"}`, ""},
		{"a subject for each object", `nats: {subject: "k8s.{namespace}.{name}"}`, ""},
		{"a user by TLS", `nats: {servers: ["tls://n:4222"], username: u, password: p}`, ""},
		{"a user on this machine", `nats: {servers: ["nats://127.0.0.1:4222"], username: u, password: p}`, ""},
		{"a signature", `nats: {servers: ["nats://n:4222"], nkeyFile: /n}`, ""},
		{"SCRAM without TLS", `kafka: {brokers: ["k:9"], sasl: {mechanism: SCRAM-SHA-512, username: u, password: p}}`, ""},
		{"PLAIN by TLS", `kafka: {brokers: ["k:9"], tls: {}, sasl: {mechanism: PLAIN, username: u, password: p}}`, ""},
		{"standard output", `stdout: {}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, w := range mustLoad(t, "informers: [{name: i, resources: [pods], attributes: {team: metadata.labels.team}}]\n"+
				"sinks: [{name: s, "+test.sink+"}]").Warnings() {
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
