package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings/suggest"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
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
		if err != nil {
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
		return Failed(fmt.Errorf("%s of %s, version %s: %w", key, unit.Name, stored.Version, err))
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

// bodyVersion returns the version of a stored object, "" when it does not say.
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

// nearKeys returns the objects of a unit that were probably meant, the nearest first.
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

func writeMeta(w io.Writer, unit store.Unit, key resource.Key, s store.SettledState) error {
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

func newCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read everything that is remembered, and report what is damaged",
		Long: `check reads every table of the database, also the parts that are not in use, each record
and object of each unit, and each undelivered event. It reports what cannot be read, and changes
nothing. A torn end of the write-ahead log is what a crash leaves, and no damage.

Exit codes: 0 when everything can be read, 1 when something can't, 2 when there is no state or a
bridge runs with it.`,
		Example: `  bridge statedir check --state-dir /var/lib/bridge
  bridge statedir check && bridge run`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "state.dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		state, err := openState(cmd, s)
		if err != nil {
			return err
		}
		defer state.inspector.Close()
		t := terminal.NewTable(cmd.OutOrStdout())
		row := func(what, found string, err error) error {
			result := "good"
			if err != nil {
				result = "damaged"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", what, result, found)
			return err
		}
		fmt.Fprintln(t, "PART\tSTATE\tFOUND")
		keys, err := state.inspector.Check()
		errs := []error{row("database", terminal.Amount(int(keys), "key"), err)}
		units, err := state.inspector.Units()
		errs = append(errs, err)
		for _, u := range units {
			found, err := checkUnit(u)
			errs = append(errs, row(u.Name, found, err))
		}
		found, err := checkUndelivered(filepath.Dir(state.options.Dir))
		errs = append(errs, row("undelivered", found, err), t.Flush())
		return Failed(errors.Join(errs...))
	}
	return cmd
}

func checkUnit(u store.Unit) (found string, err error) {
	_, positionErr := u.Position()
	usage, usageErr := u.Usage()
	readable, objectsErr := u.Check()
	found = fmt.Sprintf("%s, %s, %s pending", terminal.Amount(readable, "object"),
		terminal.Amount(usage.Tombstones, "tombstone"), terminal.Amount(usage.Waiting, "change"))
	return found, unitProblems(u, usage, positionErr, usageErr, objectsErr)
}

// checkUndelivered reads all undelivered events of a state directory.
func checkUndelivered(stateDir string) (found string, err error) {
	entries, err := refused.List(filepath.Join(stateDir, "undelivered"))
	errs := []error{err}
	for i := range entries {
		if _, err := entries[i].Parse(); err != nil && !errors.Is(err, refused.ErrIncomplete) {
			errs = append(errs, fmt.Errorf("undelivered event of sink %s: %w", entries[i].Sink, err))
		}
	}
	return terminal.Amount(len(entries), "event"), errors.Join(errs...)
}

func newResetCommand() *cobra.Command {
	var yes, keepObjects bool
	cmd := &cobra.Command{
		Use:   "reset UNIT",
		Short: "Reset the saved state of a resource",
		Long: `reset deletes the saved state of one unit (a resource of an informer) in the state
directory of a stopped bridge. It shows what will be deleted, and asks.

                 without --keep-objects           with --keep-objects
  deletes        position, objects, backlog       position
  next start     a first snapshot: every object   sends the backlog, lists, and sends
                 as added, with initial           exactly what differs, as inferred
  deletes since  are not noticed                  are noticed
  gap event      forgotten                        interrupted
  ids            of a new epoch: nobody takes     as usual
                 them for repeats
  use it when    a sink lost what it had; an      you doubt that the bridge has seen
                 etcd was restored without        everything
                 --bump-revision; a record
                 cannot be read

To send every object to a sink again, no reset is needed: 'bridge snapshot' does it on a running
bridge.

With snapshot: never there is no list: neither form sends what exists, and the unit continues with
changes after its start.

UNIT is a name that 'bridge statedir ls' lists, or an unambiguous part of it: pods for pods/pods.
Other units are not touched. A reset deletes all of it or, when it fails, nothing. It cannot repair
a damaged database.

Exit codes: 0 when it was reset, 1 when it failed or you answered no, 2 when there is no such unit,
no state, a bridge that uses it, or no terminal to ask on.`,
		Example: `  bridge statedir reset pods                             everything again
  bridge statedir reset apps/deployments.apps --keep-objects
  bridge statedir reset old-informer/jobs.batch --yes    without a question, for scripts`,
		Args: cobra.ExactArgs(1),
	}
	s := NewSettings(cmd, "state.dir")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&keepObjects, "keep-objects", false, "forget only the position: the next "+
		"start lists, and sends what differs")
	cmd.ValidArgsFunction = completeUnits(s)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plan, err := planReset(cmd, s, args[0], keepObjects)
		if err != nil {
			return err
		}
		if !yes {
			fmt.Fprint(cmd.ErrOrStderr(), plan)
			if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr()); err != nil {
				return err
			}
		}
		if err := store.Reset(plan.state, plan.unit, keepObjects); err != nil {
			return resetError(err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s has forgotten %s\n", plan.unit, plan.forgotten())
		return nil
	}
	return cmd
}

// resetError is refused when a bridge was started while the question stood.
func resetError(err error) error {
	if errors.Is(err, statedb.ErrInUse) {
		return Refused(err)
	}
	return Failed(err)
}

// resetPlan is what a reset is about to forget.
type resetPlan struct {
	state       statedb.Options
	unit        string
	position    string
	usage       store.Usage
	keepObjects bool
}

// planReset looks at what there is, and lets go of the directory: a bridge must be able to start
// while a question waits for its answer.
func planReset(
	cmd *cobra.Command, s *Settings, name string, keepObjects bool,
) (p resetPlan, err error) {
	state, err := openState(cmd, s)
	if err != nil {
		return p, err
	}
	defer state.inspector.Close()
	unit, err := findUnit(state.inspector, name)
	if err != nil {
		return p, err
	}
	p = resetPlan{state: state.options, unit: unit.Name, position: "none", keepObjects: keepObjects}
	position, err := unit.Position()
	switch {
	case errors.Is(err, statedb.ErrDamaged):
		return p, Failed(err)
	case err != nil:
		p.position = "one that can't be understood"
	case position.Version != "":
		p.position = fmt.Sprintf("%s, saved %s", position.Version,
			position.Time.UTC().Format(time.RFC3339))
	}
	p.usage, err = unit.Usage()
	return p, Failed(err)
}

// String returns what is shown before the question.
func (p resetPlan) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s in %s\n  position: %s\n  objects:  %s\n  waiting:  %s\n", p.unit,
		p.state.Dir, p.position, p.objects(), p.waiting())
	if p.keepObjects {
		s.WriteString("Its position will be forgotten. The next start lists, and sends what " +
			"differs from the objects.\n")
	} else {
		s.WriteString("All of it will be forgotten. The next start sends every object as added, " +
			"and does not notice what was deleted until then.\n")
	}
	if p.usage.Waiting > 0 && !p.keepObjects {
		s.WriteString("Pending changes will never be sent: run a bridge until it has sent it, or use " +
			"--keep-objects.\n")
	}
	return s.String()
}

func (p resetPlan) waiting() string { return terminal.Amount(p.usage.Waiting, "change") }

func (p resetPlan) objects() string {
	text := terminal.Amount(p.usage.Objects, "object") + ", " + terminal.Amount(p.usage.Tombstones,
		"tombstone")
	if p.usage.Damaged > 0 {
		text += ", " + terminal.Amount(p.usage.Damaged, "record") + " that can't be understood"
	}
	return text
}

// forgotten returns what is printed afterwards.
func (p resetPlan) forgotten() string {
	if p.keepObjects {
		return fmt.Sprintf("its position (%s); it keeps %s, %s waiting", p.position, p.objects(),
			p.waiting())
	}
	return fmt.Sprintf("its position (%s), %s, %s waiting", p.position, p.objects(), p.waiting())
}

// confirm asks, and is an error for every answer but yes.
func confirm(in io.Reader, out io.Writer) error {
	if file, ok := in.(*os.File); !ok || !terminal.Is(file) {
		return Refused(errors.New("nothing was changed: there is no terminal to ask on, say --yes"))
	}
	fmt.Fprint(out, "Continue? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return Failed(fmt.Errorf("nothing was changed: read the answer: %w", err))
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return Failed(errors.New("nothing was changed"))
	}
}
