package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kubectls are the programs: those of $KUBECTLS, with spaces between them, else that of the
// control plane's version.
func kubectls(t *testing.T) map[string]string {
	t.Helper()
	programs := map[string]string{}
	for path := range strings.FieldsSeq(os.Getenv("KUBECTLS")) {
		programs[filepath.Base(filepath.Dir(path))] = path
	}
	if len(programs) == 0 {
		programs["kubectl"] = filepath.Join(tools(t), "kubectl")
	}
	return programs
}

// kubectlLines are commands whose output must be that of the API server. ${NS} is the namespace.
var kubectlLines = strings.Split(strings.TrimSpace(`
get pods -n ${NS}
get pods -n ${NS} -o wide
get pods -n ${NS} -o json
get pods -n ${NS} -o yaml
get pods -n ${NS} -o name
get pods -n ${NS} -o jsonpath={.items[*].metadata.name}
get pods -n ${NS} -o go-template={{range.items}}{{.metadata.uid}}{{end}}
get pods -n ${NS} -o custom-columns=N:.metadata.name,S:.status.phase
get pods -n ${NS} --show-labels
get pods -n ${NS} -L app,tier
get pods -n ${NS} -l app=web
get pods -n ${NS} -l app!=web,tier
get pods -n ${NS} -l app=none
get pods -n ${NS} --field-selector=status.phase=Running
get pods -n ${NS} --field-selector=spec.nodeName=worker-1,metadata.name!=done
get pods -n ${NS} --field-selector=spec.image=x
get pods -n ${NS} --sort-by=.metadata.name
get pods -n ${NS} --no-headers
get pods -n ${NS} --chunk-size=2
get pods -n ${NS} --server-print=false
get pods -n ${NS} --show-managed-fields=false -o yaml
get pods -A
get pods -A --chunk-size=1
get all -n ${NS}
get all -A
get nodes
get nodes -o wide
get namespaces
get pod web-5d-a -n ${NS}
get pod web-5d-a -n ${NS} -o yaml
get pod web-5d-a -n ${NS} -o json --show-managed-fields=false
get pod web-5d-a done -n ${NS}
get pod/web-5d-a deployment/web -n ${NS}
get pod none -n ${NS}
get pod none -n ${NS} --ignore-not-found
get pods -n none
get things.${NS}.example.com -n ${NS}
get things.${NS}.example.com one -n ${NS} -o yaml
get thing -n ${NS}
get events -n ${NS}
get events -n ${NS} --field-selector=type=Warning
get events -n ${NS} --field-selector=involvedObject.name=web-5d-a
get secrets -n ${NS}
get secret token -n ${NS} -o yaml
get secrets -n ${NS} --field-selector=type=kubernetes.io/basic-auth
get configmaps,secrets,services -n ${NS}
get deploy,rs,sts,ds,job,cj,hpa -n ${NS} -o wide
get svc,endpointslices,ing,netpol -n ${NS} -o wide
get pv,sc
get pvc,pdb,sa,role,rolebinding,limits,quota,cm,lease,controllerrevisions,podtemplates,rc -n ${NS} -o wide
get clusterroles,clusterrolebindings,priorityclasses,runtimeclasses,ingressclasses,csidrivers,csinodes,volumeattachments -o wide
get validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,prioritylevelconfigurations,csr,crd,apiservices
get deviceclasses,resourceslices,ipaddresses,servicecidrs,volumeattributesclasses
get resourceclaims,resourceclaimtemplates,csistoragecapacities -n ${NS}
get nothing
get deployments.v1.apps web -n ${NS}
get deployments.v1beta1.apps web -n ${NS}
get --raw /healthz
get --raw /readyz
get --raw /livez
get deployment web -n ${NS} --subresource=status
describe pods -n ${NS}
describe pod web-5d-a -n ${NS}
describe nodes
describe namespace shop
describe deployments -n ${NS}
describe replicasets -n ${NS}
describe statefulsets -n ${NS}
describe daemonsets -n ${NS}
describe jobs -n ${NS}
describe cronjobs -n ${NS}
describe hpa -n ${NS}
describe services -n ${NS}
describe endpointslices -n ${NS}
describe ingresses -n ${NS}
describe ingressclasses
describe networkpolicies -n ${NS}
describe configmaps -n ${NS}
describe secrets -n ${NS}
describe serviceaccounts -n ${NS}
describe pv
describe pvc -n ${NS}
describe storageclasses
describe pdb -n ${NS}
describe roles -n ${NS}
describe rolebindings -n ${NS}
describe clusterrole view
describe clusterrolebinding cluster-admin
describe limitranges -n ${NS}
describe resourcequotas -n ${NS}
describe replicationcontrollers -n ${NS}
describe priorityclasses
describe csinodes
describe csr
describe leases -n ${NS}
describe crd things.${NS}.example.com
describe things.${NS}.example.com -n ${NS}
describe events -n ${NS}
describe controllerrevisions -n ${NS}
describe podtemplates -n ${NS}
describe runtimeclasses
describe csidrivers
describe csistoragecapacities -n ${NS}
describe volumeattachments
describe volumeattributesclasses
describe validatingwebhookconfigurations
describe mutatingwebhookconfigurations
describe validatingadmissionpolicies
describe validatingadmissionpolicybindings
describe flowschema probes
describe prioritylevelconfiguration system
describe apiservice v1.apps
describe deviceclasses
describe resourceslices
describe resourceclaims -n ${NS}
describe resourceclaimtemplates -n ${NS}
describe servicecidrs
describe ipaddresses
explain pods
explain pods.spec.containers --recursive
explain deployments.spec.strategy
explain things.${NS}.example.com.spec
explain cronjobs --api-version=batch/v1
events -n ${NS}
events -n ${NS} --types=Warning
events -n ${NS} --for=pod/web-5d-a
events -A
wait deployment/web -n ${NS} --for=condition=Available --timeout=5s
wait pod/web-5d-a -n ${NS} --for=jsonpath={.status.phase}=Running --timeout=5s
wait pod/none -n ${NS} --for=delete --timeout=5s
rollout history deployment/web -n ${NS}
get pods -n ${NS} -w --request-timeout=1s
get pod web-5d-a -n ${NS} -w --output-watch-events --request-timeout=1s
get pods -n ${NS} --watch-only --request-timeout=1s
`), "\n")

// readOnlyLines are commands whose output is of what is served, with a part of it.
var readOnlyLines = [][2]string{
	{"api-resources", "deployments"},
	{"api-resources --namespaced=false --verbs=list", "nodes"},
	{"api-resources -o wide", "get,list,watch"},
	{"api-versions", "apps/v1"},
	{"get endpoints -n ${NS}", "10.244.0.2:8080"}, // the API server warns of a deprecated kind
	{"describe endpoints -n ${NS}", "10.244.0.2"},
	{"auth can-i list pods", "yes"},
	{"auth can-i get secrets -n ${NS}", "yes"},
	{"auth can-i get /version", "yes"},
	{"auth can-i delete pods", "no"},
	{"auth can-i get pods --subresource=log", "no"},
	{"auth can-i --list -n ${NS}", "deployments.apps"},
	{"auth whoami", "bridge:reader"},
	{"cluster-info", "running at"},
	{"top pods -n ${NS}", "Metrics API not available"},
	{"top nodes", "Metrics API not available"},
	{"get --raw /nothing", "there is no /nothing"},
	{"get deployment web -n ${NS} --subresource=scale", "a history has objects, and no scale of them"},
	{"get flowschemas", "catch-all"}, // in the order of names, not of their precedence
	{"version", "Server Version: v1.36.3+history"},
	{"logs web-5d-a -n ${NS}", "no log of them"},
	{"exec web-5d-a -n ${NS} -- true", "can be read, and nothing can be changed"},
	{"delete pod web-5d-a -n ${NS}", "can be read, and nothing can be changed"},
	{"scale deployment web -n ${NS} --replicas=3", "can be read, and nothing can be changed"},
	{"label pod web-5d-a -n ${NS} a=b", "can be read, and nothing can be changed"},
	{"annotate pod web-5d-a -n ${NS} a=b", "can be read, and nothing can be changed"},
	{"create configmap x -n ${NS}", "can be read, and nothing can be changed"},
	{"patch pod web-5d-a -n ${NS} -p {}", "can be read, and nothing can be changed"},
	{"rollout restart deployment/web -n ${NS}", "can be read, and nothing can be changed"},
	{"cordon worker-1", "can be read, and nothing can be changed"},
	{"diff -f ${FILE}", "can be read, and nothing can be changed"},
	{"apply -f ${FILE}", "can be read, and nothing can be changed"},
	{"apply --server-side -f ${FILE}", "can be read, and nothing can be changed"},
}

// command runs a line of kubectl, and returns all that it prints.
func (p *past) command(t *testing.T, program, kubeconfig, line string, flags ...string) string {
	t.Helper()
	replace := strings.NewReplacer("${NS}", p.lab.namespace, "${FILE}", filepath.Join(p.dir, "object.yaml"))
	args := append([]string{
		"--kubeconfig", kubeconfig, "--cache-dir", filepath.Join(p.dir, "cache", filepath.Base(filepath.Dir(program)), filepath.Base(kubeconfig)),
	}, flags...)
	for field := range strings.FieldsSeq(line) {
		args = append(args, replace.Replace(field))
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HOME="+p.dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(&errs, err)
	}
	return out.String() + errs.String()
}

// shownAges are ages in what kubectl prints, with the blanks that they have beside them.
var shownAges = regexp.MustCompile(`\b\d+[smhdy](\d+[smhd])?( ago)?\b|<unknown>`)

// plain is an output without ages and addresses, and without widths of columns.
func (p *past) plain(output string) []string {
	output = shownAges.ReplaceAllString(output, "AGE")
	for _, host := range []string{p.api.Host, p.served.Host} {
		output = strings.ReplaceAll(output, host, "HOST")
	}
	var lines []string
	for line := range strings.Lines(output) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// kubectlReads compares the output of commands, and looks for what a read-only server must say.
func (p *past) kubectlReads(t *testing.T, program string) {
	t.Helper()
	must(t, p.writeManifest())
	served := filepath.Join(p.dir, "past.yaml")
	for _, line := range kubectlLines {
		got, want := p.plain(p.command(t, program, served, line)), p.plain(p.command(t, program, p.Kubeconfig, line))
		if !slices.Equal(got, want) {
			t.Errorf("kubectl %s:\n%s", line, changedLines(got, want))
		}
	}
	for _, line := range readOnlyLines {
		if out := p.command(t, program, served, line[0]); !strings.Contains(out, line[1]) {
			t.Errorf("kubectl %s:\n%s\nwant %s", line[0], out, line[1])
		}
	}
}

// writeManifest writes an object that kubectl apply and diff take.
func (p *past) writeManifest() error {
	return os.WriteFile(filepath.Join(p.dir, "object.yaml"), fmt.Appendf(nil,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: %s}, data: {value: other}}\n", p.lab.namespace), 0o600)
}

// changedLines are those that only one of two outputs has.
func changedLines(got, want []string) string {
	var text strings.Builder
	for _, line := range got {
		if !slices.Contains(want, line) {
			fmt.Fprintln(&text, "got  "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			fmt.Fprintln(&text, "want "+line)
		}
	}
	if text.Len() == 0 {
		fmt.Fprintf(&text, "the lines are in another order:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return text.String()
}
