package resource_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
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

var update = flag.Bool("update", false, "rewrite the golden files")

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

var isFingerprint = regexp.MustCompile(`^redacted:[0-9a-f]{8}:[0-9a-f]{16}$`).MatchString

// fingerprint of a value at a field of an object. The field is its steps: ".name" of a member, "[0"
// of an item, "=name" of an item with a name.
func fingerprint(typ resource.Type, namespace, name, value string, field ...string) string {
	keyed := func(text string) string {
		mac := hmac.New(sha256.New, []byte(redactionKey))
		mac.Write([]byte(text))
		return hex.EncodeToString(mac.Sum(nil))
	}
	part := func(text string) string { return string(binary.AppendUvarint(nil, uint64(len(text)))) + text }
	path := ""
	for _, step := range field {
		path += step[:1] + part(step[1:])
	}
	return "redacted:" + keyed("kubebridge/key-id/1")[:8] + ":" +
		keyed("kubebridge/fingerprint/1" + part(typ.Group) + part(typ.Resource) + part(namespace) + part(name) + part(path) + value)[:16]
}

// A secret is redacted as in the golden file.
func TestRedactedSecretGolden(t *testing.T) {
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
	if obj.Namespace != "shop" || obj.Name != "db" || obj.Version != "77" || !strings.HasPrefix(string(obj.Writes), "kubectl-client-side-apply\x00") {
		t.Errorf("Meta = %+v", obj.Meta)
	}
}

// Fingerprints are of the decoded value.
func TestFingerprintOfDecoded(t *testing.T) {
	of := func(value string, field ...string) string {
		return `"` + fingerprint(secrets, "", "s", value, field...) + `"`
	}
	obj := mustParse(t, `{"data":{"a":"aHVudGVyMg=="},"stringData":{"b":"hunter\u0032","c":"\u0000"},
		"metadata":{"name":"s","annotations":{"helm.sh/hook":"kept","`+lastApplied+`":"{}"},"resourceVersion":"1"}}`,
		resource.ParseOptions{Type: secrets, Redactor: newRedactor(t)})
	raw := string(obj.Raw)
	for _, want := range []string{
		`"data":{"a":` + of("hunter2", ".data", ".a") + `}`,
		`"stringData":{"b":` + of("hunter2", ".data", ".b") + `,"c":` + of("\x00", ".data", ".c") + `}`,
		`"annotations":{"helm.sh/hook":"kept","` + lastApplied + `":` + of("{}", ".metadata", ".annotations", "."+lastApplied) + `}`,
	} {
		if !strings.Contains(raw, want) {
			t.Errorf("%s\nis not in %s", want, raw)
		}
	}
	if obj.Name != "s" || obj.Version != "1" {
		t.Errorf("Name, Version = %q, %q: edits before them moved them", obj.Name, obj.Version)
	}
}

func TestFingerprints(t *testing.T) {
	key := func(text string) *resource.Redactor {
		r, err := resource.NewRedactor([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	configMaps := resource.Type{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	parse := func(t *testing.T, r *resource.Redactor, typ resource.Type, namespace, name, rest string) string {
		t.Helper()
		rules, err := resource.NewRules(resource.RulesConfig{Redactor: r, Redact: pathsOf(t, "spec.list.*", "spec.users.*.password", "data.*")})
		if err != nil {
			t.Fatal(err)
		}
		opts := resource.ParseOptions{Type: typ, Redactor: r, Rules: rules}
		if typ.Resource == secrets.Resource {
			opts.Rules = nil
		}
		return string(mustParse(t, `{"metadata":{"namespace":"`+namespace+`","name":"`+name+`","resourceVersion":"1"},`+rest+`}`, opts).Raw)
	}
	all := func(raw string) []string { return fingerprints.FindAllString(raw, -1) }
	one := func(t *testing.T, r *resource.Redactor, typ resource.Type, namespace, name, rest string) string {
		t.Helper()
		found := all(parse(t, r, typ, namespace, name, rest))
		if len(found) != 1 {
			t.Fatalf("%d fingerprints", len(found))
		}
		return found[0]
	}
	r := newRedactor(t)
	const value = `"data":{"a":"aHVudGVyMg=="}`
	first := one(t, r, secrets, "shop", "db", value)

	t.Run("one place, one value: the same in every version of the object and of the API", func(t *testing.T) {
		v2 := secrets
		v2.Version = "v2"
		for i, again := range []string{
			one(t, r, secrets, "shop", "db", `"type":"x",`+value),
			one(t, newRedactor(t), secrets, "shop", "db", value),
			one(t, r, v2, "shop", "db", value),
			one(t, r, secrets, "shop", "db", `"stringData":{"a":"hunter2"}`),
			one(t, r, secrets, `sh\u006fp`, `d\u0062`, `"d\u0061ta":{"\u0061":"aHVudGVyMg\u003d="}`),
		} {
			if again != first {
				t.Errorf("%d: %s, not %s", i, again, first)
			}
		}
	})
	t.Run("the same value in another place looks different", func(t *testing.T) {
		seen := map[string]bool{first: true}
		for i, other := range []string{
			one(t, r, secrets, "shop", "db2", value),
			one(t, r, secrets, "shop2", "db", value),
			one(t, r, secrets, "sho", "pdb", value),
			one(t, r, secrets, "shop", "db", `"data":{"b":"aHVudGVyMg=="}`),
			one(t, r, configMaps, "shop", "db", `"data":{"a":"hunter2"}`),
			one(t, r, configMaps, "shop", "db", `"data":{"a.b":"hunter2"}`),
			one(t, r, resource.Type{Group: "g", Version: "v1", Resource: "configmaps", Namespaced: true}, "shop", "db", `"data":{"a":"hunter2"}`),
			one(t, r, configMaps, "shop", "db", `"spec":{"list":["hunter2"]}`),
			one(t, key("another key of 16 bytes"), secrets, "shop", "db", value),
		} {
			if seen[other] {
				t.Errorf("%d: %s is there already", i, other)
			}
			seen[other] = true
		}
	})
	t.Run("the data before the metadata changes nothing", func(t *testing.T) {
		obj := mustParse(t, `{`+value+`,"metadata":{"name":"db","resourceVersion":"1","namespace":"shop"}}`, resource.ParseOptions{Type: secrets, Redactor: r})
		if got := all(string(obj.Raw)); len(got) != 1 || got[0] != first {
			t.Errorf("%s, not %s", got, first)
		}
	})
	t.Run("items with a name are known by it, others by their index", func(t *testing.T) {
		users := func(list string) []string {
			return all(parse(t, r, configMaps, "shop", "db", `"spec":{"users":`+list+`}`))
		}
		one := users(`[{"name":"a","password":"x"},{"password":"x","name":"b"},{"password":"x"},{"name":7,"password":"x"}]`)
		two := users(`[{"name":"new","password":"x"},{"name":"b","password":"x"},{"password":"x"},{"password":"y","name":"a"}]`)
		if len(one) != 4 || one[0] == one[1] || one[1] == one[2] || one[2] == one[3] {
			t.Errorf("equal values look equal: %s", one)
		}
		if len(two) != 4 || two[1] != one[1] || two[2] != one[2] || two[3] == one[0] || two[0] == one[0] {
			t.Errorf("%s\nbecame %s", one, two)
		}
	})
	t.Run("they say which key made them", func(t *testing.T) {
		if id := r.KeyID(); !strings.HasPrefix(first, `"redacted:`+id+`:`) || id == key("another key of 16 bytes").KeyID() {
			t.Errorf("%s of key %s", first, id)
		}
	})
	t.Run("what was redacted before stays, whatever the key is now", func(t *testing.T) {
		opts := resource.ParseOptions{Type: secrets, Redactor: r}
		raw := parse(t, r, secrets, "shop", "db", value)
		opts.Redactor = key("another key of 16 bytes")
		if again := mustParse(t, raw, opts.Again()); string(again.Raw) != raw {
			t.Errorf("%s\nbecame %s", raw, again.Raw)
		}
	})
	t.Run("a value with the look of one is replaced", func(t *testing.T) {
		if raw := parse(t, r, secrets, "shop", "db", `"stringData":{"a":`+first+`}`); strings.Contains(raw, first) {
			t.Error(raw)
		}
	})
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

// Redaction fails closed, and reveals nothing.
func TestRedactionFailure(t *testing.T) {
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
				t.Errorf("the error has the value: %v", err)
			}
		})
	}
}

// Only Secrets of the core group are redacted.
func TestForeignSecrets(t *testing.T) {
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

// A short redaction key is refused.
func TestShortRedactionKey(t *testing.T) {
	if _, err := resource.NewRedactor([]byte("short")); err == nil {
		t.Error("NewRedactor took a key of 5 bytes")
	}
}

// golden compares a text with a file, or writes the file.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != text {
		t.Errorf("%s (%v) is not\n%s", file, err, text)
	}
}
