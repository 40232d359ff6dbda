package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
)

func newSchemaCommand() *cobra.Command {
	forms, output := false, "yaml"
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print what a configuration publishes, as an AsyncAPI document",
		Long: `schema prints an AsyncAPI 3 document of exactly what a configuration publishes: the
subjects, topics and URLs of its sinks, the messages with their headers, and a JSON Schema (draft 7)
for the headers and the payload of each. Programs make code, checks and pages of it. It makes no
request: what only the API server knows, such as the meaning of "*", is a parameter of the address.

With --forms it prints one JSON Schema with a definition for every form of payload and every event
about an informer, whatever the configuration.

Exit codes: 0 when it is printed, 2 when the configuration is wrong.`,
		Example: `  bridge schema --config bridge.yaml > asyncapi.yaml
  bridge schema --config bridge.yaml --output json
  bridge schema --forms --output json`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "cluster")
	cmd.Flags().BoolVar(&forms, "forms", false, "print the schemas of all payloads alone")
	OutputFlag(cmd, &output, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(output, "yaml", "json"); err != nil {
			return err
		}
		doc := asyncapi.Forms()
		if !forms {
			c, err := s.Load()
			if err != nil {
				return err
			}
			doc = app.Schema(c)
		}
		if output == "json" {
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			return encoder.Encode(doc)
		}
		encoder := yaml.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent(2)
		return encoder.Encode(doc)
	}
	return cmd
}
