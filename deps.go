//go:build deps

package deps
import (
 _ "k8s.io/client-go/rest"
 _ "k8s.io/client-go/discovery"
 _ "k8s.io/client-go/util/workqueue"
 _ "k8s.io/client-go/tools/clientcmd"
 _ "k8s.io/apimachinery/pkg/apis/meta/v1"
 _ "github.com/nats-io/nats.go"
 _ "github.com/nats-io/nats.go/jetstream"
 _ "github.com/nats-io/nats-server/v2/server"
 _ "github.com/segmentio/kafka-go"
 _ "github.com/cloudevents/sdk-go/v2"
 _ "github.com/spf13/viper"
 _ "github.com/spf13/cobra"
 _ "github.com/cockroachdb/pebble/v2"
 _ "github.com/go-json-experiment/json/jsontext"
 _ "github.com/prometheus/client_golang/prometheus/promhttp"
 _ "github.com/twmb/franz-go/pkg/kfake"
 _ "github.com/klauspost/compress/s2"
 _ "golang.org/x/sync/errgroup"
 _ "github.com/rogpeppe/go-internal/testscript"
 _ "golang.org/x/time/rate"
)
