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

func TestEveryAlertHasAUnitTestInWhichItFires(t *testing.T) {
	tests := read(t, "alerts_test.yaml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, "alerts.yaml"), -1)
	for _, alert := range alerts {
		fires := strings.Contains(tests, `alertname="`+alert[1]+`"}', value: 1`) || regexp.MustCompile(`alertname: `+alert[1]+`\n\s+exp_alerts:\n\s+- `).MatchString(tests)
		if !fires {
			t.Errorf("%s has no unit test in which it fires", alert[1])
		}
	}
	if len(alerts) < 15 {
		t.Errorf("only %d alerts were found", len(alerts))
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

func TestEveryExpressionOfTheDashboardCanBeEvaluated(t *testing.T) {
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
