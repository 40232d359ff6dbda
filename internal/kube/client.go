package kube

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// defaultTimeout bounds a request where the configuration does not.
const defaultTimeout = 32 * time.Second

// codecs know the API server's errors (Status) and no other type: everything else is read as JSON.
// client-go's clientset would link the types of the whole Kubernetes API.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// newClient makes a client that speaks JSON, for one group version, or with nil for absolute paths.
// Its limit of requests is that of the configuration's transport. It makes no request.
func newClient(config *rest.Config, gv *schema.GroupVersion) (rest.Interface, error) {
	own := rest.CopyConfig(config)
	own.ContentConfig = rest.ContentConfig{
		GroupVersion: gv, NegotiatedSerializer: codecs.WithoutConversion(),
	}
	own.APIPath = "/apis"
	own.QPS = -1
	if own.Timeout == 0 {
		own.Timeout = defaultTimeout
	}
	client, err := rest.UnversionedRESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return client, nil
}

// send gives the body of the answer to a request. An error has the message that came with it:
// Result.Raw alone would say "unknown".
func send(ctx context.Context, request *rest.Request) (body []byte, contentType string, err error) {
	answer := request.Do(ctx).ContentType(&contentType)
	if err := answer.Error(); err != nil {
		return nil, "", err
	}
	body, err = answer.Raw()
	return body, contentType, err
}
