package source

import (
	"errors"
	"net/url"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// UseNATS makes the reader connect as a sink does. Where From is empty, it becomes the address of
// the sink's streams. stateDir is the bridge's.
func (c *Config) UseNATS(n *nats.Config, cluster, stateDir string) error {
	loaded, err := n.Load(stateDir)
	if err != nil {
		return err
	}
	if c.NATS = loaded; c.From != "" {
		return nil
	}
	scheme := "nats"
	var hosts []string
	for _, server := range n.Servers {
		address, err := url.Parse(string(server))
		if err != nil {
			return errors.New("servers: not a URL") // without the parser's error, which repeats it
		}
		host := address.Host
		if address.User != nil {
			host = address.User.String() + "@" + host
		}
		scheme, hosts = address.Scheme, append(hosts, host)
	}
	stream, err := Pattern(n.Stream.Name, cluster, event.AppendSubjectToken)
	c.From = scheme + "://" + strings.Join(hosts, ",") + "/" + stream
	return err
}

// UseKafka makes the reader connect as a sink does. Where From is empty, it becomes the address of
// the sink's topics.
func (c *Config) UseKafka(k *kafka.Config, cluster string) (err error) {
	c.Kafka, err = k.Connection(strings.ReplaceAll(c.Client, " ", "-"))
	if err != nil || c.From != "" {
		return err
	}
	topic, err := Pattern(k.Topic, cluster, event.AppendTopicPart)
	c.From = "kafka://" + strings.Join(k.Brokers, ",") + "/" + topic
	return err
}

// Pattern is what a template of streams, subjects or topics stands for, with * for each field that
// is not known.
func Pattern(template, cluster string, encode func([]byte, string) []byte) (string, error) {
	t, err := event.ParseTemplate(template)
	if err != nil {
		return "", err
	}
	known := map[string]string{}
	if cluster != "" {
		known["cluster"] = cluster
	}
	return t.Pattern("*", known, encode), nil
}
