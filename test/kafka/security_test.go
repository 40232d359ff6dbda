package kafkatest_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

func TestTheSinkAuthenticates(t *testing.T) {
	c := broker(t)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte(unsecuredToken("bridge")), 0o600))
	for _, sasl := range []*kafka.SASL{
		{Mechanism: "PLAIN", Username: user, Password: password},
		{Mechanism: "SCRAM-SHA-256", Username: user, Password: password},
		{Mechanism: "SCRAM-SHA-512", Username: user, Password: password},
		{Mechanism: "OAUTHBEARER", TokenFile: token},
	} {
		t.Run("by "+sasl.Mechanism+" over TLS", func(t *testing.T) {
			publishOne(t, c.Listener("SASL"), func(k *kafka.Options) { k.Connection.SASL, k.Connection.TLS = sasl, client(t, "") })
		})
	}
	t.Run("by a certificate", func(t *testing.T) {
		publishOne(t, c.Listener("MTLS"), func(k *kafka.Options) { k.Connection.TLS = client(t, "bridge") })
	})
	for what, wrong := range map[string]func(*kafka.Options){
		"user name and password": func(k *kafka.Options) {
			k.Connection.SASL, k.Connection.TLS = &kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: user, Password: "wrong"}, client(t, "")
		},
		"sasl.mechanism": func(k *kafka.Options) {
			k.Connection.TLS = client(t, "")
			k.Connection.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: user, Password: "wrong"}
		},
		"tls settings": func(k *kafka.Options) {
			k.Connection.Brokers, k.Connection.TLS = []string{c.Listener("MTLS")}, client(t, "")
		},
	} {
		t.Run("and says what to do about wrong "+what, func(t *testing.T) {
			s := newSink(t, c, func(k *kafka.Options) {
				k.Connection.Brokers = []string{c.Listener("SASL")}
			}, wrong)
			err := s.Open(t.Context())
			if err == nil || !strings.Contains(err.Error(), "check the sink's") {
				t.Errorf("%v", err)
			}
		})
	}
}

// publishOne sends an event through a listener and finds it in the topic.
func publishOne(t *testing.T, address string, change func(*kafka.Options)) {
	t.Helper()
	c := broker(t)
	topic := fmt.Sprintf("secure%d", destinations.Add(1))
	s := openSink(t, c, func(k *kafka.Options) { k.Connection.Brokers, k.Topic = []string{address}, topic }, change)
	m := &sinks.Message{Event: sinktest.NewEvent("web", 1, 500)}
	s.Publish(t.Context(), []*sinks.Message{m})
	must(t, m.Err)
	if records := readAll(t, c, topic); len(records) != 1 || string(records[0].Value) != string(m.Event.Data) {
		t.Errorf("%d records", len(records))
	}
}

// unsecuredToken is a token that a broker takes which trusts everybody: the one way to have
// OAUTHBEARER without an identity provider.
func unsecuredToken(subject string) string {
	encode := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, now.Unix()-5, now.Add(time.Hour).Unix())
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + "."
}
