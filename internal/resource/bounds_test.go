package resource_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Any tenant may write objects with as many parts as fit, so what is done for one part must not be
// done again for each of another kind.
func TestLinearTime(t *testing.T) {
	redactor := newRedactor(t)
	rules, err := resource.NewRules(resource.RulesConfig{
		Redactor: redactor, Redact: paths(t, "data.*", "metadata.annotations.*"),
		Drop: paths(t, "metadata.labels.*"), Env: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	plain := resource.ParseOptions{Type: secrets}
	redacted := resource.ParseOptions{Type: secrets, Redactor: redactor}
	ruled := resource.ParseOptions{Type: secrets, Redactor: redactor, Rules: rules}
	many := func(n int, format string) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, ","+format, i)
		}
		return out.String()[1:]
	}
	secret := func(metadata, rest string) string {
		return `{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"shop",` + metadata +
			`,"name":"web","uid":"1","resourceVersion":"5"}` + rest + `}`
	}
	const owner = `{"apiVersion":"v1","kind":"Pod","name":"web","uid":"%d"}`
	const entry = `{"manager":"m%d","time":"2026-01-01T00:00:00Z"}`
	for name, tt := range map[string]struct {
		opts resource.ParseOptions
		raw  func(n int) string
	}{
		"owners behind redacted annotations": {redacted, func(n int) string {
			return secret(`"annotations":{`+many(n, `"a%d":""`)+`},"ownerReferences":[`+many(n, owner)+`]`, "")
		}},
		"owners before redacted annotations": {redacted, func(n int) string {
			return secret(`"ownerReferences":[`+many(n, owner)+`],"annotations":{`+many(n, `"a%d":""`)+`}`, "")
		}},
		"redacted values": {redacted, func(n int) string {
			return secret(`"x":1`, `,"data":{`+many(n, `"k%d":"YQ=="`)+`}`)
		}},
		"owners": {plain, func(n int) string {
			return secret(`"ownerReferences":[`+many(n, owner)+`]`, "")
		}},
		"managed fields of one second": {plain, func(n int) string {
			return secret(`"managedFields":[`+many(n, entry)+`]`, "")
		}},
		"what rules take out": {ruled, func(n int) string {
			return secret(`"labels":{`+many(n, `"l%d":"v"`)+`},"annotations":{`+many(n, `"a%d":""`)+
				`},"ownerReferences":[`+many(n, owner)+`]`, `,"data":{`+many(n, `"k%d":"YQ=="`)+`}`)
		}},
		"containers and their variables": {ruled, func(n int) string {
			return secret(`"x":1`, `,"spec":{"containers":[`+
				many(n/10, `{"name":"c%d","env":[{"name":"A_TOKEN","value":"x"},{"name":"B","value":"y"}]}`)+`]}`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.CheckLinear(t, 1_000, func(size int) func() {
				raw := []byte(tt.raw(size))
				return func() {
					if _, err := resource.Parse(raw, tt.opts); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

func paths(t *testing.T, texts ...string) (list []resource.Path) {
	t.Helper()
	for _, text := range texts {
		p, err := resource.ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}
