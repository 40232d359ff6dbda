package resource_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

var update = flag.Bool("update", false, "write the golden files anew")

var secrets = resource.Type{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}

const (
	redactionKey = "0123456789abcdef"
	lastApplied  = "kubectl.kubernetes.io/last-applied-configuration"
)

func newRedactor(t testing.TB) *resource.Redactor {
	t.Helper()
	r, err := resource.NewRedactor([]byte(redactionKey))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var isFingerprint = regexp.MustCompile(`^redacted:[0-9a-f]{16}$`).MatchString

func fingerprint(value string) string {
	mac := hmac.New(sha256.New, []byte(redactionKey))
	mac.Write([]byte(value))
	return "redacted:" + hex.EncodeToString(mac.Sum(nil))[:16]
}

func TestASecretIsRedactedAsInTheGoldenFile(t *testing.T) {
	obj := mustParse(t, string(readTestdata(t, "secret.json")), resource.ParseOptions{Type: secrets, Redactor: newRedactor(t)})
	const golden = "testdata/secret.redacted.json"
	if *update {
		if err := os.WriteFile(golden, append(obj.Raw, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := readTestdata(t, "secret.redacted.json")
	if !bytes.Equal(obj.Raw, want) {
		t.Errorf("Raw = %s\nwant  %s", obj.Raw, want)
	}
	for _, value := range []string{"aHVudGVyMg", "hunter2", "YWRtaW4", "admin"} {
		if bytes.Contains(obj.Raw, []byte(value)) {
			t.Errorf("%s is still there", value)
		}
	}
	if obj.Namespace != "shop" || obj.Name != "db" || obj.Version != "77" || obj.Manager != "kubectl-client-side-apply" {
		t.Errorf("Meta = %+v", obj.Meta)
	}
}

func TestFingerprintsAreOfTheDecodedValue(t *testing.T) {
	obj := mustParse(t, `{"data":{"a":"aHVudGVyMg=="},"stringData":{"b":"hunter\u0032","c":"\u0000"},
		"metadata":{"name":"s","annotations":{"helm.sh/hook":"kept","`+lastApplied+`":"{}"},"resourceVersion":"1"}}`,
		resource.ParseOptions{Type: secrets, Redactor: newRedactor(t)})
	raw := string(obj.Raw)
	for _, want := range []string{
		`"data":{"a":"` + fingerprint("hunter2") + `"}`,
		`"stringData":{"b":"` + fingerprint("hunter2") + `","c":"` + fingerprint("\x00") + `"}`,
		`"annotations":{"helm.sh/hook":"kept","` + lastApplied + `":"` + fingerprint("{}") + `"}`,
	} {
		if !strings.Contains(raw, want) {
			t.Errorf("%s\nis not in %s", want, raw)
		}
	}
	if obj.Name != "s" || obj.Version != "1" {
		t.Errorf("Name, Version = %q, %q: edits before them moved them", obj.Name, obj.Version)
	}
}

func TestAnnotationsOfSecrets(t *testing.T) {
	parse := func(t *testing.T, typ resource.Type, annotations string) string {
		t.Helper()
		return string(mustParse(t, `{"metadata":{"name":"s","resourceVersion":"1","annotations":`+annotations+`}}`,
			resource.ParseOptions{Type: typ, Redactor: newRedactor(t)}).Raw)
	}
	t.Run("a value under a name that is not known is replaced", func(t *testing.T) {
		for _, name := range []string{
			"openshift.io/token-secret.value", "banzaicloud.com/last-applied", "reconcile.external-secrets.io/data-hash",
			"x", "Helm.sh/hook", "helm.sh/hook/", "helm.sh\\u002fhooks",
		} {
			if raw := parse(t, secrets, `{"`+name+`":"hunter2"}`); strings.Contains(raw, "hunter2") {
				t.Errorf("%s: %s", name, raw)
			}
		}
	})
	t.Run("a value of another type than a string is replaced", func(t *testing.T) {
		if raw := parse(t, secrets, `{"x":{"y":["hunter2"]}}`); strings.Contains(raw, "hunter2") {
			t.Error(raw)
		}
	})
	t.Run("a harmless name keeps its value", func(t *testing.T) {
		for _, name := range []string{
			"kubernetes.io/service-account.name", "kubernetes.io/service-account.uid", "meta.helm.sh/release-name",
			"argocd.argoproj.io/tracking-id", "cert-manager.io/certificate-name", "helm.sh\\u002fhook",
		} {
			if raw := parse(t, secrets, `{"`+name+`":"kept"}`); !strings.Contains(raw, `"kept"`) {
				t.Errorf("%s: %s", name, raw)
			}
		}
	})
	t.Run("other kinds keep theirs", func(t *testing.T) {
		if raw := parse(t, resource.Type{Version: "v1", Resource: "configmaps"}, `{"x":"kept"}`); !strings.Contains(raw, `"kept"`) {
			t.Error(raw)
		}
	})
	t.Run("the page has the same list", func(t *testing.T) {
		page := readTestdata(t, "../../../docs/redaction.md")
		_, list, _ := strings.Cut(string(page), "<!-- annotations -->")
		list, _, _ = strings.Cut(list, "<!-- end -->")
		var names []string
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
			names = append(names, m[1])
		}
		if want := resource.HarmlessAnnotations(); !slices.Equal(names, want) {
			t.Errorf("docs/redaction.md has\n%q\nwant\n%q", names, want)
		}
	})
}

func TestRedactionFailsClosedAndTellsNothing(t *testing.T) {
	const meta = `"metadata":{"name":"s","resourceVersion":"1"}`
	tests := []struct {
		name, in string
		want     error
	}{
		{"data that is a string", `{` + meta + `,"data":"hunter2"}`, resource.ErrRedact},
		{"data that is an array", `{` + meta + `,"data":["hunter2"]}`, resource.ErrRedact},
		{"stringData that is a number", `{` + meta + `,"stringData":22}`, resource.ErrRedact},
		{"annotations that are a string", `{"metadata":{"name":"s","resourceVersion":"1","annotations":"hunter2"}}`, resource.ErrRedact},
		{"data twice", `{` + meta + `,"data":{},"d\u0061ta":{"a":"hunter2"}}`, resource.ErrDuplicate},
		{"half a value", `{` + meta + `,"data":{"a":"hunter2`, resource.ErrSyntax},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj, err := resource.Parse([]byte(tt.in), resource.ParseOptions{Type: secrets, Redactor: newRedactor(t)})
			if !errors.Is(err, tt.want) || obj != nil {
				t.Fatalf("Parse = %v, %v, want %v", obj, err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "22") {
				t.Errorf("the error tells the value: %v", err)
			}
		})
	}
}

func TestOnlyCoreSecretsAreRedacted(t *testing.T) {
	const in = `{"metadata":{"name":"s","resourceVersion":"1"},"data":{"a":"b"}}`
	other := resource.Type{Group: "example.com", Version: "v1", Resource: "secrets"}
	for _, opts := range []resource.ParseOptions{
		{Type: resource.Type{Version: "v1", Resource: "configmaps"}, Redactor: newRedactor(t)},
		{Type: other, Redactor: newRedactor(t)},
		{Type: secrets},
	} {
		if obj := mustParse(t, in, opts); !bytes.Contains(obj.Raw, []byte(`"data":{"a":"b"}`)) {
			t.Errorf("%v: Raw = %s", opts.Type, obj.Raw)
		}
	}
}

func TestAShortRedactionKeyIsRefused(t *testing.T) {
	if _, err := resource.NewRedactor([]byte("short")); err == nil {
		t.Error("NewRedactor took a key of 5 bytes")
	}
}
