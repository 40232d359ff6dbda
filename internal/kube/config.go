package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// ErrNoConfig says that there is neither a kubeconfig nor a pod's service account.
var ErrNoConfig = errors.New("no Kubernetes cluster configured: there is no kubeconfig (looked " +
	"at --kubeconfig, $KUBECONFIG and ~/.kube/config), and this is no pod with a service " +
	"account; set kubernetes.kubeconfig, or run where kubectl works")

// RESTConfig returns how to reach the API server. kubeconfig is the path of a file. Where it is ""
// the files of $KUBECONFIG are read, else ~/.kube/config, else the service account of the pod.
// context is the context in the kubeconfig, "" its current one. qps and burst bound the requests
// per second of everything that is made of the configuration, together; a qps of zero is no limit.
//
// clusterName is the name of the context's cluster in the kubeconfig, and "" in a pod, which does
// not know how others call its cluster.
func RESTConfig(
	kubeconfig, context string, qps float32, burst int,
) (config *rest.Config, clusterName string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil, "", fileError(kubeconfig, err)
	}
	if api.IsConfigEmpty(raw) && kubeconfig == "" && context == "" {
		config, err = inCluster()
	} else {
		config, clusterName, err = fromContext(raw, context, source(kubeconfig))
	}
	if err != nil {
		return nil, "", err
	}
	throttle(config, qps, burst)
	config.UserAgent = "bridge/" + version()
	return config, clusterName, nil
}

// source names where the kubeconfig was read from, for errors.
func source(kubeconfig string) string {
	return cmp.Or(kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar), "~/.kube/config")
}

func fileError(kubeconfig string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kubeconfig %s does not exist", source(kubeconfig))
	}
	return fmt.Errorf("kubeconfig %s: %w", source(kubeconfig), err)
}

func inCluster() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, ErrNoConfig
	}
	if err != nil {
		return nil, fmt.Errorf("service account of the pod: %w; is "+
			"automountServiceAccountToken off?", err)
	}
	return config, nil
}

// fromContext checks the context's references by itself: clientcmd says of a misspelt context that
// the configuration is empty.
func fromContext(raw *api.Config, name, source string) (*rest.Config, string, error) {
	if name = cmp.Or(name, raw.CurrentContext); name == "" {
		return nil, "", fmt.Errorf("kubeconfig %s has no current context: set kubernetes.context "+
			"to one of %s", source, names(raw.Contexts))
	}
	context := raw.Contexts[name]
	if context == nil {
		return nil, "", fmt.Errorf("kubeconfig %s has no context %q%s", source, name,
			suggest.DidYouMean(name, keys(raw.Contexts), fewNames))
	}
	if raw.Clusters[context.Cluster] == nil {
		return nil, "", fmt.Errorf("kubeconfig %s: context %q names cluster %q, which is not in "+
			"the file", source, name, context.Cluster)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: name}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, name, overrides,
		nil).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig %s, context %q: %w", source, name, err)
	}
	return config, context.Cluster, nil
}

func keys(contexts map[string]*api.Context) []string {
	list := make([]string, 0, len(contexts))
	for name := range contexts {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func names(contexts map[string]*api.Context) string {
	return cmp.Or(strings.Join(keys(contexts), ", "), "those it has (there is none)")
}

// version of the running program's main module, for the user agent that shows in the API server's
// audit log.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return strings.Trim(info.Main.Version, "()")
	}
	return "devel"
}

// InPod reports whether this process runs in a pod.
func InPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

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

// HTTPClient returns a client for bare requests, and the URL of the API server.
func HTTPClient(config *rest.Config) (client *http.Client, server string, err error) {
	if client, err = rest.HTTPClientFor(config); err != nil {
		return nil, "", fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	if client.Timeout == 0 {
		client.Timeout = defaultTimeout
	}
	return client, strings.TrimSuffix(base.String(), "/"), nil
}

// send returns the body of the answer to a request. An error has the message that came with it:
// Result.Raw alone would say "unknown".
func send(ctx context.Context, request *rest.Request) (body []byte, contentType string, err error) {
	answer := request.Do(ctx).ContentType(&contentType)
	if err := answer.Error(); err != nil {
		return nil, "", shortened(err)
	}
	body, err = answer.Raw()
	return body, contentType, err
}

// maxAnswer is how much of an answer that is no Status an error quotes, in bytes.
const maxAnswer = 80

// shortened cuts the text of an answer that is no Status, such as the page of a proxy.
func shortened(err error) error {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	cause, isText := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if !ok || !isText {
		return err
	}
	line, _, _ := strings.Cut(cause.Message, "\n")
	if line = strings.ToValidUTF8(line[:min(len(line), maxAnswer)], ""); line == cause.Message {
		return err
	}
	short := *answer
	code := int(short.ErrStatus.Code)
	short.ErrStatus.Message = fmt.Sprintf("the answer is %d %s: %s…", code, http.StatusText(code), line)
	return &short
}

// throttle bounds the requests of all clients made of the configuration together: lists, watches
// and discovery alike, whichever client-go package sends them. client-go's own limit is one for
// each REST client, and none for bare transports. A watch counts once, when it is opened. Zero or
// less is no limit.
func throttle(config *rest.Config, qps float32, burst int) {
	config.QPS, config.Burst = -1, 0 // not a second time by client-go
	if qps <= 0 {
		return
	}
	limiter := rate.NewLimiter(rate.Limit(qps), max(burst, 1))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &throttledTransport{next, limiter} })
}

// throttledTransport waits for its turn before each request.
type throttledTransport struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

// RoundTrip blocks until the request may go, or its context has ended.
func (t *throttledTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.limiter.Wait(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must, also on errors
		}
		return nil, err
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go look through to the transport, to cancel requests and to close
// idle connections.
func (t *throttledTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections is passed on: http.Client calls it on its own transport only.
func (t *throttledTransport) CloseIdleConnections() {
	type closer interface{ CloseIdleConnections() }
	if c, ok := t.next.(closer); ok {
		c.CloseIdleConnections()
	}
}
