package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/store"
)

// findUnit finds the unit that is meant: by its name, else by what of it distinguishes it from the
// others.
func findUnit(in *store.Inspector, meant string) (store.Unit, error) {
	units, err := in.Units()
	if err != nil {
		return store.Unit{}, Failed(err)
	}
	for _, matches := range []func(name, meant string) bool{
		isUnit, isResource,
		isResourceOfAnyGroup,
	} {
		var found []store.Unit
		for _, u := range units {
			if matches(u.Name, meant) {
				found = append(found, u)
			}
		}
		if len(found) == 1 {
			return found[0], nil
		}
		if len(found) > 1 {
			return store.Unit{}, Refused(fmt.Errorf("%q may be any of these, give one in full:\n%s",
				meant, unitNames(found)))
		}
	}
	if len(units) == 0 {
		return store.Unit{}, Refused(fmt.Errorf("there is no %q: no informer has any state",
			meant))
	}
	return store.Unit{}, Refused(fmt.Errorf("no informer has state under the name %q; there "+
		"are:\n%s", meant, unitNames(units)))
}

// Names of units are informer/resource and informer/resource/namespace, the resource as
// plural.group.

func isUnit(name, meant string) bool { return name == meant }

// isResource leaves out the informer, the namespace, or both.
func isResource(name, meant string) bool {
	informer, rest, _ := strings.Cut(name, "/")
	resource, _, _ := strings.Cut(rest, "/")
	return meant == rest || meant == resource || meant == informer+"/"+resource
}

// isResourceOfAnyGroup leaves out the group too.
func isResourceOfAnyGroup(name, meant string) bool {
	informer, rest, _ := strings.Cut(name, "/")
	resource, namespace, one := strings.Cut(rest, "/")
	plural, _, _ := strings.Cut(resource, ".")
	short := informer + "/" + plural
	if one {
		short += "/" + namespace
	}
	return isUnit(short, meant) || isResource(short, meant)
}

func unitNames(units []store.Unit) string {
	var lines []string
	for _, u := range units {
		lines = append(lines, "  "+u.Name)
	}
	return strings.Join(lines, "\n")
}

// completeUnits lets shells complete the first argument.
func completeUnits(s *Settings) cobra.CompletionFunc {
	return func(
		cmd *cobra.Command, args []string, _ string,
	) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, none
		}
		state, err := openState(cmd, s)
		if err != nil {
			return nil, none
		}
		defer state.inspector.Close()
		units, err := state.inspector.Units()
		if err != nil {
			return nil, none
		}
		for _, u := range units {
			names = append(names, u.Name)
		}
		return names, none
	}
}

// unitProblems says what of a unit's state can't be understood, and what can be done about it.
func unitProblems(u store.Unit, usage store.Usage, errs ...error) error {
	var problems []error
	if usage.Damaged > 0 {
		problems = append(problems, fmt.Errorf("%s: %s can't be understood; restore the "+
			"directory from a copy, or forget them with 'bridge statedir reset %s'",
			u.Name, terminal.Amount(usage.Damaged, "record"), u.Name))
	}
	for _, err := range errs {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", u.Name, err))
		}
	}
	return errors.Join(problems...)
}
