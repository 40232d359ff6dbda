package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings/suggest"
	"github.com/kubebridge/bridge/internal/store"
)

func newGetCommand() *cobra.Command {
	output := "json"
	cmd := &cobra.Command{
		Use:   "get UNIT [NAMESPACE/]NAME",
		Short: "Print the last settled version of an object",
		Long: `get prints the last settled version of one object: that which all sinks have acknowledged,
or which waits on disk for those that have not. It is the JSON as it is sent: without what the
informer cuts, and with redacted values as they are stored. In a flood of updates the state has an
earlier version of the object (state.bodiesPerSecond), and get says so.

UNIT is a name that 'bridge statedir ls' lists, or what distinguishes it from the others: pods for
pods/pods, when no other unit has pods; deployments/shop for apps/deployments.apps/shop.

With --output meta it prints the object's uid and version, and whether it is deleted: a deleted
object has no JSON any more, and is remembered until the watermark has passed its deletion.

Exit codes: 0, also when the object is known to be deleted; 1 when it is not known, or can't be
read; 2 when there is no such unit, no state, or a bridge runs with it.`,
		Example: `  bridge statedir get pods shop/web-0
  bridge statedir get nodes worker-1 --output meta
  bridge statedir get apps/deployments.apps shop/web | jq .status`,
		Args: cobra.ExactArgs(2),
	}
	s := NewSettings(cmd, "state.dir")
	OutputFlag(cmd, &output, "json", "meta")
	cmd.ValidArgsFunction = completeUnits(s)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[1])
		if err := errors.Join(CheckOutput(output, "json", "meta"), err); err != nil {
			return err
		}
		state, err := openState(cmd, s)
		if err != nil {
			return err
		}
		defer state.inspector.Close()
		unit, err := findUnit(state.inspector, args[0])
		if err != nil {
			return err
		}
		return getObject(cmd, unit, key, output)
	}
	return cmd
}

func parseKey(text string) (resource.Key, error) {
	namespace, name, namespaced := strings.Cut(text, "/")
	if namespace == "" || namespaced && name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q: want NAMESPACE/NAME, or NAME of an object without namespace",
			text)
	}
	return resource.Key(text), nil
}

func getObject(cmd *cobra.Command, unit store.Unit, key resource.Key, output string) error {
	stored, found, err := unit.Object(key)
	switch {
	case !found && err != nil:
		return Failed(fmt.Errorf("%s of %s: %w", key, unit.Name, err))
	case !found:
		return unknownObject(unit, key)
	case output == "meta":
		// What the body is like does not matter for it.
		return Failed(writeMeta(cmd.OutOrStdout(), unit, key, stored))
	case err != nil:
		return Failed(fmt.Errorf("%s of %s, version %s: %w", key, unit.Name, stored.Version,
			err))
	case stored.Deleted:
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s of %s is deleted as of version %s (uid %s)\n",
			terminal.Plain(string(key)), unit.Name, terminal.Plain(string(stored.Version)),
			terminal.Plain(stored.UID))
		return nil
	default:
		if v := bodyVersion(stored.Body); v != "" && v != stored.Version {
			fmt.Fprintf(cmd.ErrOrStderr(), "bridge: this is version %s of %s; of version %s, "+
				"which was sent, the state has no object (state.bodiesPerSecond)\n",
				terminal.Plain(string(v)), terminal.Plain(string(key)),
				terminal.Plain(string(stored.Version)))
		}
		out := cmd.OutOrStdout()
		return Failed(printBody(out, stored.Body, terminal.Is(out)))
	}
}

// bodyVersion is the version of a stored object, "" when it does not say.
func bodyVersion(body []byte) resource.Version {
	var object struct {
		Metadata struct {
			Version resource.Version `json:"resourceVersion"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &object) // what does not parse is printed as it is
	return object.Metadata.Version
}

// unknownObject says what was probably meant.
func unknownObject(unit store.Unit, key resource.Key) error {
	near, err := nearKeys(unit, key)
	if err != nil {
		return Failed(err)
	}
	hint := "nothing is named like it"
	if len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return Failed(fmt.Errorf("%s does not know %s: %s", unit.Name, key, hint))
}

// nearKeys are the objects of a unit that were probably meant, the nearest first.
func nearKeys(unit store.Unit, meant resource.Key) ([]string, error) {
	var near suggest.Objects
	for key, err := range unit.Keys() {
		if err != nil {
			return nil, err
		}
		near.Add(string(meant), string(key))
	}
	return near.Nearest(), nil
}

func writeMeta(w io.Writer, unit store.Unit, key resource.Key, s store.Stored) error {
	state := fmt.Sprintf("live, %d bytes stored", s.BodyBytes)
	if v := bodyVersion(s.Body); v != "" && v != s.Version {
		state += ", of version " + string(v)
	}
	if s.Deleted {
		state = "deleted as of this version"
	}
	_, err := fmt.Fprintf(w, "unit:    %s\nobject:  %s\nuid:     %s\nversion: %s\nstate:   %s\n",
		unit.Name, terminal.Plain(string(key)), terminal.Plain(s.UID),
		terminal.Plain(string(s.Version)), terminal.Plain(state))
	return err
}

// printBody prints an object as it is stored, or with line breaks, for people.
func printBody(w io.Writer, body []byte, pretty bool) error {
	if pretty {
		return terminal.PrintIndented(w, []byte(terminal.Plain(string(body))))
	}
	_, err := fmt.Fprintf(w, "%s\n", body)
	return err
}
