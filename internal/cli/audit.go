package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/kube"
)

func newAuditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Prepare a cluster for 'bridge who'",
	}
	var level string
	policy := &cobra.Command{
		Use:   "policy",
		Short: "Print the policies that let a change be joined with the audit log",
		Long: `policy prints two admission policies and their bindings. They refuse and change nothing: they have
the API server note in its audit log which version of an object a request has seen. 'bridge who'
needs that to name the user of a change. The second one is for objects that several write at once:
leave it out where the API server's CPU is scarce.

With --log it prints an audit policy instead, for --audit-policy-file of the API server. Metadata
has a line for each write; RequestResponse has its answer too, with which every create and update has
its user, and is larger. Reads are left out, and so is what Secrets hold.

Kubernetes 1.30 or later takes them. The log must have all API servers of the cluster.`,
		Example: `  bridge audit policy | kubectl apply -f -
  bridge audit policy --log RequestResponse > /etc/kubernetes/audit-policy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := audit.Policy()
			switch audit.Level(level) {
			case "":
			case audit.Metadata, audit.RequestResponse:
				text = audit.LogPolicy(audit.Level(level))
			default:
				return fmt.Errorf("--log %s: want %s or %s", level, audit.Metadata, audit.RequestResponse)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return Failed(err)
		},
	}
	policy.Flags().StringVar(&level, "log", "",
		"print the audit policy of this level: Metadata or RequestResponse")
	_ = policy.RegisterFlagCompletionFunc("log", cobra.FixedCompletions(
		[]string{string(audit.Metadata), string(audit.RequestResponse)}, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(policy, newAuditCheckCommand())
	return cmd
}

// auditCheck is one call of bridge audit check.
type auditCheck struct {
	*historyOptions
	logs       []string
	isComplete bool
	patience   time.Duration
	check      *audit.Check
	// Of the last log that was read.
	log *audit.Log
}

func newAuditCheckCommand() *cobra.Command {
	a := &auditCheck{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Write to a scratch namespace in every way, and see whose user the audit log has",
		Long: `check makes a namespace, writes to objects in it in every way that there is, and removes it. Then it
reads the audit log as 'bridge who' does, and says for each way to write whether its user is known
here, how, or why not. So it shows whether the policies of 'bridge audit policy' are in place, and
what a provider withholds.

It needs the right to make a namespace and to write there; what the user may not do is not tried.
The log is what the history sink records (key audit), or files (--audit).

Exit codes: 0 when the user of most writes is known and none is wrong; 1 when not; 2 when it can't
begin.`,
		Example: `  bridge audit check --audit /var/log/kubernetes/audit.log
  bridge audit check --config bridge.yaml        what its history records`,
		Args: cobra.NoArgs,
	}
	a.historyOptions = &historyOptions{
		settings: NewSettings(cmd, "state.dir", "kubernetes.kubeconfig", "kubernetes.context"),
	}
	a.placeFlags(cmd)
	OutputFlag(cmd, &a.output, "table", "json", "yaml")
	cmd.Flags().StringSliceVar(&a.logs, "audit", nil,
		"file or directory of the API server's audit log (several: again)")
	cmd.Flags().BoolVar(&a.isComplete, "complete", false, "the log has every request")
	cmd.Flags().DurationVar(&a.patience, "wait", 90*time.Second, "how long to wait for the log")
	cmd.RunE = a.run
	return cmd
}

func (a *auditCheck) run(cmd *cobra.Command, _ []string) (err error) {
	c, err := a.settings.Load()
	if err != nil {
		return err
	}
	config, _, err := kube.RESTConfig(c.Kubernetes.Kubeconfig, c.Kubernetes.Context, 0, 0)
	if err != nil {
		return Refused(err)
	}
	client, server, err := kube.HTTPClient(config)
	if err != nil {
		return Refused(err)
	}
	a.check = &audit.Check{
		Client: client, Server: server,
		Namespace: fmt.Sprintf("kubebridge-check-%d", time.Now().UnixMilli()),
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 10*time.Second)
		defer cancel()
		err = errors.Join(err, a.check.Remove(ctx))
	}()
	fmt.Fprintf(cmd.ErrOrStderr(), "bridge: writing to namespace %s\n", a.check.Namespace)
	if err := a.check.Write(cmd.Context()); err != nil {
		return Refused(err)
	}
	answers, err := a.wait(cmd)
	if errors.Is(err, ask.ErrNoAudit) {
		return Refused(err)
	}
	if err != nil {
		return Failed(err)
	}
	return Failed(errors.Join(a.print(cmd, answers), a.judge(answers)))
}

// wait asks until every user is known, the log has brought nothing more for a while, or the time is
// over.
func (a *auditCheck) wait(cmd *cobra.Command) ([]audit.CheckAnswer, error) {
	const while = 10 * time.Second
	least, changed := 0, time.Now()
	for end := time.Now().Add(a.patience); ; {
		answers, err := a.check.Answers(func(wanted map[string]bool) (audit.Requests, error) {
			return a.requests(cmd, wanted)
		})
		unknown, isEarly := 0, false
		for _, w := range answers {
			if w.Unknown != "" {
				unknown++
			}
			isEarly = isEarly || w.IsEarly
		}
		if unknown < least || least == 0 {
			least, changed = unknown, time.Now()
		}
		isStill := !isEarly && unknown < len(answers)/2 && time.Since(changed) > while
		if err != nil || unknown == 0 || isStill || time.Now().After(end) {
			return answers, err
		}
		select {
		case <-cmd.Context().Done():
			return answers, context.Cause(cmd.Context())
		case <-time.After(2 * time.Second):
		}
	}
}

func (a *auditCheck) requests(cmd *cobra.Command, wanted map[string]bool) (audit.Requests, error) {
	if len(a.logs) > 0 {
		a.log = audit.NewLog(wanted, a.isComplete)
		for _, path := range a.logs {
			if err := readAudit(a.log, path); err != nil {
				return nil, err
			}
		}
		return a.log, nil
	}
	db, err := a.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	cluster, err := a.question(cmd, db.Questions).OneCluster()
	if err != nil {
		return nil, err
	}
	recorded, err := audit.NewRecorded(db.Questions, cluster)
	if err == nil && recorded == nil {
		err = ask.ErrNoAudit
	}
	if err != nil {
		return nil, err
	}
	return recorded.Read(wanted)
}

// judge says what is missing.
func (a *auditCheck) judge(answers []audit.CheckAnswer) error {
	known := 0
	for _, w := range answers {
		if w.Wrong != "" {
			return fmt.Errorf("%s: %s is named, who did not write it: please report this", w.Write, w.Wrong)
		}
		if w.Unknown == "" {
			known++
		}
	}
	switch {
	case 2*known > len(answers):
		return nil
	case a.log != nil && a.log.Requests == 0:
		return errors.New("the log has no writes: its policy leaves them out, or it is of another API server")
	case a.log != nil && a.log.Noted == 0:
		return errors.New("no write in the log has a note of the admission policies: apply 'bridge audit " +
			"policy', and wait a second")
	}
	return fmt.Errorf("of %d ways to write the user of %d is known", len(answers), known)
}

func (a *auditCheck) print(cmd *cobra.Command, answers []audit.CheckAnswer) error {
	switch a.output {
	case "json":
		return terminal.PrintJSON(cmd.OutOrStdout(), answers)
	case "yaml":
		return terminal.PrintYAML(cmd.OutOrStdout(), answers)
	}
	t := terminal.NewTable(cmd.OutOrStdout())
	fmt.Fprintln(t, "WRITE\tUSER")
	for _, w := range answers {
		answer := cmp.Or(string(w.Grade), "-")
		if w.Unknown != "" {
			answer = "(" + w.Unknown + ")"
		}
		fmt.Fprintf(t, "%s\t%s\n", w.Write, terminal.OneLine(answer))
	}
	return t.Flush()
}
