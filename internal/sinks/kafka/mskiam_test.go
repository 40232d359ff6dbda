package kafka

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// withoutAWS hides what the machine knows of AWS, and that it may be one of its instances.
func withoutAWS(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value)
			testkit.OK(t, os.Unsetenv(name))
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "credentials"))
}

// signed is the request that a token of MSK is.
func signed(t *testing.T, c *AWS) *url.URL {
	t.Helper()
	token, err := mskToken(t.Context(), c)
	testkit.OK(t, err)
	text, err := token(t.Context())
	testkit.OK(t, err)
	text = strings.TrimRight(text, "=")
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	testkit.OK(t, err)
	u, err := url.Parse(string(decoded))
	testkit.OK(t, err)
	return u
}

// stsServer answers as AWS's service for roles: the key of each answer is another one.
func stsServer(t *testing.T) (asked *[]url.Values) {
	t.Helper()
	asked = new([]url.Values)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		testkit.OK(t, r.ParseForm())
		*asked = append(*asked, r.PostForm)
		action := r.PostForm.Get("Action")
		w.Header().Set("content-type", "text/xml")
		fmt.Fprintf(w, `<%sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%sResult><Credentials>
<AccessKeyId>ASIA%d</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>session</SessionToken>
<Expiration>%s</Expiration></Credentials></%sResult></%sResponse>`, action, action, len(*asked),
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339), action, action)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL_STS", server.URL)
	return asked
}

func TestMSKToken(t *testing.T) {
	keys := func(t *testing.T) {
		withoutAWS(t)
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	}
	t.Run("keys in variables sign for the region of AWS_REGION", func(t *testing.T) {
		keys(t)
		t.Setenv("AWS_REGION", "eu-central-1")
		u := signed(t, nil)
		q := u.Query()
		if u.Host != "kafka.eu-central-1.amazonaws.com" || q.Get("Action") != "kafka-cluster:Connect" ||
			!strings.HasPrefix(q.Get("X-Amz-Credential"), "AKIAENV/") || q.Get("X-Amz-Signature") == "" ||
			strings.Contains(u.String(), "hunter2") {
			t.Errorf("signed %s", u)
		}
	})
	t.Run("the configured region is before that of the variable", func(t *testing.T) {
		keys(t)
		t.Setenv("AWS_REGION", "eu-central-1")
		if u := signed(t, &AWS{Region: "us-east-2"}); u.Host != "kafka.us-east-2.amazonaws.com" {
			t.Errorf("signed %s", u)
		}
	})
	t.Run("a profile has keys and a region", func(t *testing.T) {
		withoutAWS(t)
		testkit.OK(t, os.WriteFile(os.Getenv("AWS_CONFIG_FILE"), []byte("[profile lake]\n"+
			"region = eu-west-1\naws_access_key_id = AKIAFILE\naws_secret_access_key = s\n"), 0o600))
		u := signed(t, &AWS{Profile: "lake"})
		if u.Host != "kafka.eu-west-1.amazonaws.com" ||
			!strings.HasPrefix(u.Query().Get("X-Amz-Credential"), "AKIAFILE/") {
			t.Errorf("signed %s", u)
		}
	})
	t.Run("the role of a service account is taken on, once for all connections", func(t *testing.T) {
		withoutAWS(t)
		file := filepath.Join(t.TempDir(), "token")
		testkit.OK(t, os.WriteFile(file, []byte("web-identity"), 0o600))
		t.Setenv("AWS_REGION", "eu-central-1")
		t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/bridge")
		t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
		asked := stsServer(t)
		token, err := mskToken(t.Context(), nil)
		testkit.OK(t, err)
		for range 3 {
			_, err = token(t.Context())
			testkit.OK(t, err)
		}
		if len(*asked) != 1 || (*asked)[0].Get("Action") != "AssumeRoleWithWebIdentity" ||
			(*asked)[0].Get("WebIdentityToken") != "web-identity" {
			t.Errorf("asked %v", *asked)
		}
	})
	t.Run("roleARN is taken on with the keys", func(t *testing.T) {
		keys(t)
		asked := stsServer(t)
		const role = "arn:aws:iam::210987654321:role/lake"
		u := signed(t, &AWS{Region: "eu-central-1", RoleARN: role})
		if q := u.Query(); !strings.HasPrefix(q.Get("X-Amz-Credential"), "ASIA1/") ||
			q.Get("X-Amz-Security-Token") != "session" || len(*asked) != 1 ||
			(*asked)[0].Get("RoleArn") != role {
			t.Errorf("signed %s, asked %v", u, *asked)
		}
	})
}

func TestMSKBroker(t *testing.T) {
	withoutAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "pods"))
	testkit.OK(t, err)
	t.Cleanup(cluster.Close)
	var mechanisms, said []string
	cluster.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mechanisms = append(mechanisms, r.(*kmsg.SASLHandshakeRequest).Mechanism)
		return r.ResponseKind(), nil, true
	})
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		said = append(said, string(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes))
		return r.ResponseKind(), nil, true
	})
	section := testkit.WithDefaults(Config{
		Brokers: cluster.ListenAddrs(), Topic: "pods", MaxTopics: 1,
		SASL: &SASL{Mechanism: "AWS_MSK_IAM", AWS: &AWS{Region: "eu-central-1"}},
	})
	testkit.OK(t, section.Check(t.Context(), sinks.Common{Name: "lake", Encoding: sinks.Binary},
		&sinks.Env{Cluster: "dev", Registry: prometheus.NewRegistry()},
		func(topic string) []string { return []string{topic} }))
	if len(said) == 0 || mechanisms[0] != "OAUTHBEARER" ||
		!strings.HasPrefix(said[0], "n,,\x01auth=Bearer aHR0cHM6Ly9rYWZrYS5") { // https://kafka.
		t.Errorf("the broker was asked for %q and heard %q", mechanisms, said)
	}
}

func TestMSKMistakes(t *testing.T) {
	start := func(c *AWS) error {
		_, _, err := (&SASL{Mechanism: "AWS_MSK_IAM", AWS: c}).load(t.Context())
		return err
	}
	expect := func(t *testing.T, err error, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
	t.Run("no region", func(t *testing.T) {
		withoutAWS(t)
		expect(t, start(nil), "no AWS region", "AWS_REGION")
	})
	t.Run("a profile that is in no file", func(t *testing.T) {
		withoutAWS(t)
		expect(t, start(&AWS{Profile: "gone"}), "gone")
	})
	t.Run("no credentials", func(t *testing.T) {
		withoutAWS(t)
		token, err := mskToken(t.Context(), &AWS{Region: "eu-central-1"})
		testkit.OK(t, err)
		_, err = token(context.WithoutCancel(t.Context()))
		expect(t, err, "credentials of AWS (environment, web identity, profile, container or instance)")
	})
}
