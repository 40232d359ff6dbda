package config_test

import (
	"testing"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
)

func TestSections(t *testing.T) {
	const mistakes = `
admin: {address: "127.0.0.1:1", adddress: x}
informers: [{name: pods, namspaces: [a], sinks: [{name: none}]}]
`
	load := func(data string, sections ...string) (*config.Config, []*settings.Problem) {
		c, err := config.Load(config.Options{File: "bridge.yaml", Data: []byte(data), Sections: sections})
		return c, settings.Problems(err)
	}
	t.Run("a mistake in another section is not reported", func(t *testing.T) {
		c, found := load("admin: {address: \"127.0.0.1:1\"}\ninformers: [{name: 3, namspaces: [a]}]\n", "admin")
		if c == nil || c.Admin.Address != "127.0.0.1:1" || len(found) != 0 {
			t.Errorf("%+v %v", c, found)
		}
	})
	t.Run("one in a section that is needed is", func(t *testing.T) {
		if _, found := load(mistakes, "admin"); len(found) != 1 || found[0].Path != "admin.adddress" {
			t.Errorf("%v", found)
		}
	})
	t.Run("and so is a file that is no YAML", func(t *testing.T) {
		if _, found := load("admin: {", "state"); len(found) != 1 {
			t.Errorf("%v", found)
		}
	})
	t.Run("without sections everything is", func(t *testing.T) {
		if _, found := load(mistakes); len(found) != 4 {
			t.Errorf("%v", found)
		}
	})
}
