package monitoring_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

const deployed = "../../deploy/monitoring/"

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(deployed + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every alert has a unit test in which it fires.
func TestEveryAlertFires(t *testing.T) {
	tests := read(t, "alerts_test.yaml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, "alerts.yaml"), -1)
	for _, alert := range alerts {
		fires := regexp.MustCompile(`alertname="` + alert[1] + `"[^}]*}', value: 1|` +
			`alertname: ` + alert[1] + `\n\s+exp_alerts:\n\s+- `)
		if !fires.MatchString(tests) {
			t.Errorf("%s has no unit test in which it fires", alert[1])
		}
	}
	if len(alerts) < 15 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
}

// TestRunbooks: whoever is called at night finds a section for each alert, and each section an
// alert.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	urls := map[string]string{}
	rule := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?\n {10}runbook_url: (\S+)\n`)
	for _, match := range rule.FindAllStringSubmatch(read(t, "alerts.yaml"), -1) {
		urls[match[1]] = match[2]
	}
	for _, match := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, "alerts.yaml"), -1) {
		alert := match[1]
		want := "https://github.com/kubebridge/bridge/blob/main/docs/runbooks.md#" + strings.ToLower(alert)
		if urls[alert] != want {
			t.Errorf("runbook_url of %s is %q, want %q", alert, urls[alert], want)
		}
		_, section, found := strings.Cut(page, "\n### "+alert+"\n")
		if !found {
			t.Errorf("docs/runbooks.md has no section for %s", alert)
		}
		section, _, _ = strings.Cut(section, "\n### ")
		for _, part := range []string{"Meaning", "Impact", "Diagnosis", "Remedy"} {
			if !strings.Contains(section, "**"+part+".**") {
				t.Errorf("the section of %s has no %s", alert, part)
			}
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(page, -1) {
		if urls[match[1]] == "" {
			t.Errorf("docs/runbooks.md has a section for %s, which is no alert", match[1])
		}
	}
}

// expressions are all values of "expr" and "query" in a JSON document.
func expressions(document any, found []string) []string {
	switch v := document.(type) {
	case map[string]any:
		for key, value := range v {
			if text, ok := value.(string); ok && key == "expr" {
				found = append(found, text)
			}
			found = expressions(value, found)
		}
	case []any:
		for _, value := range v {
			found = expressions(value, found)
		}
	}
	return found
}

// Every expression of the dashboard can be evaluated.
func TestDashboardExpressions(t *testing.T) {
	var document any
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &document); err != nil {
		t.Fatal(err)
	}
	found := expressions(document, nil)
	grafana := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")
	p := parser.NewParser(parser.Options{})
	for _, text := range found {
		if _, err := p.ParseExpr(grafana.Replace(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if len(found) < 20 {
		t.Errorf("only %d expressions were found", len(found))
	}
}
