package deploy_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// monitored are the files of the alert rules and the dashboard, by the values that turn them on.
var monitored = map[string]string{"prometheusRule": "alerts.yaml", "dashboard": "dashboard.json"}

// copyMonitoring copies them into the chart, which can hold files of its own only.
func copyMonitoring() error {
	for _, name := range monitored {
		text, err := os.ReadFile(filepath.Join("monitoring", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		to := filepath.Join(chartDir, "files", name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// The chart's alerts and dashboard are those of the project.
func TestChartMonitoring(t *testing.T) {
	for _, name := range monitored {
		original, err := os.ReadFile(filepath.Join("monitoring", name))
		copied, copyErr := os.ReadFile(filepath.Join(chartDir, "files", name))
		if (err == nil) != (copyErr == nil) || string(original) != string(copied) {
			t.Errorf("%s in %s is not the one in deploy/monitoring: run go test . -update (%v, %v)", name, chartDir, err, copyErr)
		}
	}
}

// What goes through YAML, templates and a ConfigMap must come out as it was: rules are full of
// braces.
func TestMonitoringRoundTrip(t *testing.T) {
	v := withoutMissing(t, readValues(t, minimal+"prometheusRule: {enabled: true}\ndashboard: {enabled: true}\n"))
	list := objects(t, mustRender(t, v))
	if _, ok := v["prometheusRule"]; ok {
		text, err := os.ReadFile("monitoring/alerts.yaml")
		must(t, err)
		var want map[string]any
		must(t, yaml.Unmarshal(text, &want))
		if got := find(t, list, "PrometheusRule", "").Object["spec"]; !equalYAML(t, got, want) {
			t.Errorf("the rules are %v", got)
		}
	}
	if _, ok := v["dashboard"]; ok {
		text, err := os.ReadFile("monitoring/dashboard.json")
		must(t, err)
		data, _ := dashboardOf(t, list).Object["data"].(map[string]any)
		var got, want any
		must(t, yaml.Unmarshal([]byte(data["bridge.json"].(string)), &got))
		must(t, yaml.Unmarshal(text, &want))
		if !equal(got, want) {
			t.Error("the dashboard is another one after the round trip")
		}
	}
}

func equalYAML(t *testing.T, a, b any) bool {
	t.Helper()
	first, err := yaml.Marshal(a)
	must(t, err)
	second, err := yaml.Marshal(b)
	must(t, err)
	return string(first) == string(second)
}

func dashboardOf(t *testing.T, list []*unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(list, func(o *unstructured.Unstructured) bool { return o.GetName() == "bridge-dashboard" })
	if i < 0 {
		t.Fatal("there is no dashboard")
	}
	return list[i]
}
