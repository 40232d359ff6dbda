package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// Guard knows which configuration a process runs, and which it may run next without a restart: none
// that moves what it is made of, and none that sends more of the objects, or to another place. Make
// it with NewGuard. It is not for concurrent use.
type Guard struct {
	running *Config
	limits  limits
}

// NewGuard makes the guard of a process that was started with a configuration.
func NewGuard(started *Config) *Guard {
	g := &Guard{}
	g.SetRunning(started)
	return g
}

// SetRunning says that the process runs another configuration now.
func (g *Guard) SetRunning(running *Config) {
	g.running = running
	g.limits.add(running)
}

// Check returns why the process can't run the next configuration: a settings.Problem for each key
// that only a restart changes, and for each change that would let more data leave; nil when it can.
func (g *Guard) Check(next *Config) error {
	var problems []error
	fixed(reflect.ValueOf(g.running).Elem(), reflect.ValueOf(next).Elem(), "",
		func(path string, was reflect.Value) {
			problems = append(problems, next.ProblemAt(path,
				"can't be changed while the bridge runs, where it is %v: restart it", g.shown(path, was)))
		})
	return errors.Join(slices.Concat(problems, g.checkEmbedded(next), g.checkLoosening(next))...)
}

// live are the keys that a running bridge changes.
var live = []string{"informers", "sinks", "log.level"}

// fixed finds the keys of a section that are different and are not live.
func fixed(before, after reflect.Value, path string, found func(path string, was reflect.Value)) {
	for _, f := range settings.Fields(before.Type()) {
		was, is, at := before.Field(f.Index), after.Field(f.Index), settings.Join(path, f.Key)
		switch {
		case slices.Contains(live, at):
		case f.IsSection:
			fixed(was, is, at, found)
		case !reflect.DeepEqual(was.Interface(), is.Interface()):
			found(at, was)
		}
	}
}

// shown is a value as a person may see it: variables as the file names them, secrets masked.
func (g *Guard) shown(path string, v reflect.Value) string {
	o := g.running.Origins()[path]
	if v.Kind() == reflect.String {
		return o.Hide(fmt.Sprintf("%q", v.Interface()))
	}
	return o.Hide(fmt.Sprint(v.Interface()))
}

// checkEmbedded finds embedded servers that come, go or move: a server that others read from is not
// taken down by a change of a file.
func (g *Guard) checkEmbedded(next *Config) (problems []error) {
	was, is := embedded(g.running), embedded(next)
	for i := range next.Sinks {
		s := &next.Sinks[i]
		at := fmt.Sprintf("sinks[%d].nats", i)
		before, after := was[s.Name], is[s.Name]
		switch {
		case before == nil && after != nil:
			problems = append(problems,
				next.ProblemAt(at+".embedded",
					"an embedded NATS server can't be added while the bridge runs: restart it"))
		case before != nil && after != nil &&
			(!slices.Equal(before.Servers, after.Servers) || before.StoreDir != after.StoreDir):
			problems = append(problems,
				next.ProblemAt(at, "servers and storeDir of an embedded NATS server can't be changed while "+
					"the bridge runs: restart it"))
		}
	}
	for name := range was {
		if is[name] == nil {
			problems = append(problems,
				next.ProblemAt("sinks", "the embedded NATS server of sink %s can't be taken away while the "+
					"bridge runs: restart it", name))
		}
	}
	return problems
}

// embedded are the NATS sinks with a server of their own, by name.
func embedded(c *Config) map[string]*nats.Config {
	found := map[string]*nats.Config{}
	for _, s := range c.Sinks {
		if s.NATS != nil && s.NATS.Embedded {
			found[s.Name] = s.NATS
		}
	}
	return found
}

// Who may edit the file of a running bridge is often not who may read Secrets: in a cluster the
// file is a ConfigMap. So a change of the file alone never makes more data leave, nor sends it to
// another place. A restart does that, and who may restart the bridge chooses its whole command
// line.

const needsRestart = "can't be done while the bridge runs, so that who may edit this file does " +
	"not read more by that: restart the bridge"

// limits are what a process has withheld since it started, and where it has sent to. They only
// grow stricter from one configuration to the next: else an informer that is removed by one reload
// could come back without its redaction by another.
type limits struct {
	secrets      bool     // whether some informer redacts Secrets
	redact, drop []string // the paths of all informers
	redactEnv    bool
	places       map[string]*place // where sinks send to
	variables    map[variable]bool // which were used, and by which keys
}

// place is what sinks have used with one address.
type place struct {
	protection sinks.Protection // the best one
	// certificates are the ways to check the server's certificate; files are those with
	// credentials, as "http.tokenFile=FILE".
	certificates, files map[string]bool
}

// variable is one of the environment that a key uses. The key has no numbers of items: other
// informers and sinks may use the same variable in the same way.
type variable struct{ key, name string }

var itemNumber = regexp.MustCompile(`\[\d+\]`)

// variables are those that informers and sinks use, with a path of each.
func variables(c *Config) map[variable]string {
	found := map[variable]string{}
	for path, o := range c.Origins() {
		if !strings.HasPrefix(path, "informers[") && !strings.HasPrefix(path, "sinks[") {
			continue // only a restart changes it, or it is not sent
		}
		key := itemNumber.ReplaceAllString(path, "[]")
		// It was expanded before, so it has no mistakes.
		_, _ = settings.Expand(o.Reference, func(name string) (string, bool) {
			v := variable{key, name}
			if first, known := found[v]; !known || path < first {
				found[v] = path
			}
			return "", true
		})
	}
	return found
}

// add adds those of a configuration that runs now.
func (l *limits) add(c *Config) {
	if l.places == nil {
		l.places, l.variables = map[string]*place{}, map[variable]bool{}
	}
	for v := range variables(c) {
		l.variables[v] = true
	}
	for i := range c.Informers {
		l.addInformer(&c.Informers[i])
	}
	for i := range c.Sinks {
		l.addSink(&c.Sinks[i])
	}
}

func (l *limits) addSink(sink *Sink) {
	files, certificates := sink.files()
	for _, address := range sink.Places() {
		p := l.places[address]
		if p == nil {
			p = &place{certificates: map[string]bool{}, files: map[string]bool{}}
			l.places[address] = p
		}
		p.protection = max(p.protection, sink.Protection())
		p.certificates[certificates] = true
		for key, file := range files {
			p.files[key+"="+file] = true
		}
	}
}

func (l *limits) addInformer(inf *Informer) {
	l.secrets = l.secrets || inf.Secrets != "send"
	l.redact = union(l.redact, inf.Redact)
	l.drop = union(l.drop, inf.Drop)
	l.redactEnv = l.redactEnv || inf.RedactEnv
}

// checkLoosening returns a Problem for each change that would send more of the objects, or send
// them to a place where nothing is sent now.
func (g *Guard) checkLoosening(next *Config) (found []error) {
	l := &g.limits
	running := g.running.Informers
	for i := range next.Informers {
		inf := &next.Informers[i]
		// An informer that is new, or selects other objects than before, may select what any other
		// redacts: under another name of the resource, or by "*".
		withheld := *l
		j := slices.IndexFunc(running, func(r Informer) bool { return r.Name == inf.Name })
		if j >= 0 && sameSelection(&running[j], inf) {
			withheld = limits{}
			withheld.addInformer(&running[j])
		}
		found = append(found, withheld.checkInformer(next, i)...)
	}
	for i := range next.Sinks {
		found = append(found, l.checkSink(next, i)...)
	}
	return append(found, l.checkVariables(next)...)
}

// checkVariables finds variables in keys that did not use them: a password of the environment
// could be put into a subject.
func (l *limits) checkVariables(next *Config) (found []error) {
	for v, path := range variables(next) {
		if !l.variables[v] {
			found = append(found, next.ProblemAt(path,
				"using ${%s}, which this key did not use before, %s", v.name, needsRestart))
		}
	}
	return settings.InOrder(found)
}

func (l *limits) checkInformer(next *Config, i int) (found []error) {
	inf := &next.Informers[i]
	report := func(key, format string, args ...any) {
		path := fmt.Sprintf("informers[%d].%s", i, key)
		found = append(found, next.ProblemAt(path, format+" "+needsRestart, args...))
	}
	if l.secrets && inf.Secrets == "send" {
		report("secrets", "sending values of Secrets")
	}
	for _, path := range without(l.redact, inf.Redact, inf.Drop) {
		report("redact", "sending what is at %s, which is redacted now,", path)
	}
	for _, path := range without(l.drop, inf.Drop) {
		report("drop", "sending what is at %s, which is dropped now,", path)
	}
	if l.redactEnv && !inf.RedactEnv {
		report("redactEnv", "sending environment variables that are redacted now")
	}
	return found
}

func (l *limits) checkSink(next *Config, i int) (found []error) {
	sink := &next.Sinks[i]
	at := fmt.Sprintf("sinks[%d]", i)
	report := func(path, format string, args ...any) {
		found = append(found, next.ProblemAt(path, format+" "+needsRestart, args...))
	}
	protection := sink.Protection()
	files, certificates := sink.files()
	for _, place := range sink.Places() {
		was, address := l.places[place], settings.URL(place)
		switch {
		case was == nil:
			report(at, "sending to %s, where no sink sends now,", address)
			continue
		case protection < was.protection:
			report(at, "sending to %s by %s, where %s is used now,", address, protection, was.protection)
		case was.protection == sinks.CheckedTLS && !was.certificates[certificates]:
			report(at, "checking the certificate of %s by another caFile or serverName", address)
		}
		for _, key := range slices.Sorted(maps.Keys(files)) {
			if !was.files[key+"="+files[key]] {
				report(at+"."+key, "sending what is in %s to %s, where it is not used now,", files[key], address)
			}
		}
	}
	return found
}

// sameSelection reports whether two informers select the same objects.
func sameSelection(a, b *Informer) bool {
	type selection struct {
		resources, exclude, namespaces                  []string
		namespaceSelector, labelSelector, fieldSelector string
	}
	of := func(i *Informer) selection {
		return selection{
			i.Resources, i.Exclude, i.Namespaces,
			i.NamespaceSelector, i.LabelSelector, i.FieldSelector,
		}
	}
	return reflect.DeepEqual(of(a), of(b))
}

// union returns the texts of both lists, each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// without returns what of list is in none of the others.
func without(list []string, others ...[]string) []string {
	have := slices.Concat(others...)
	return slices.DeleteFunc(slices.Clone(list),
		func(s string) bool { return slices.Contains(have, s) })
}
