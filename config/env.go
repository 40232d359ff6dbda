package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kubebridge/bridge/internal/suggest"
)

// EnvPrefix begins the name of every environment variable that sets a key.
const EnvPrefix = "BRIDGE_"

// EnvName is the variable that sets the key at a path: BRIDGE_STATE_DIR for state.dir,
// BRIDGE_INFORMERS_WORKLOADS_LABEL_SELECTOR or BRIDGE_INFORMERS_0_LABEL_SELECTOR for labelSelector
// of the first informer, whose name is workloads.
func EnvName(path ...string) string {
	words := make([]string, 0, len(path))
	for _, key := range path {
		words = append(words, upperSnake(key))
	}
	return EnvPrefix + strings.Join(words, "_")
}

// upperSnake turns labelSelector, kafka-lake and QPS into LABEL_SELECTOR, KAFKA_LAKE and QPS.
func upperSnake(key string) string {
	var out strings.Builder
	lower := false
	for _, c := range key {
		if unicode.IsUpper(c) && lower {
			out.WriteByte('_')
		}
		lower = unicode.IsLower(c) || unicode.IsDigit(c)
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			c = '_'
		}
		out.WriteRune(unicode.ToUpper(c))
	}
	return out.String()
}

// environment applies the BRIDGE_ variables to the keys inside lists, and knows the names of all
// that mean something.
type environment struct {
	*problems
	known []string
	// elements are the names of informers and sinks, by the key of their list.
	elements map[string][]string
}

// lookup is the value of a variable. An empty one counts as not set, as deployments leave optional
// ones.
func (e *environment) lookup(name string) (string, bool) {
	e.known = append(e.known, name)
	value := os.Getenv(name)
	return value, value != ""
}

// lists applies the variables of the keys in informers and sinks.
func (e *environment) lists(c *Config) {
	e.elements = map[string][]string{"informers": c.informerNames(), "sinks": c.sinkNames()}
	if !anyVariable() {
		return // most of the time of loading is names that nobody has set
	}
	for i := range c.Informers {
		e.element(reflect.ValueOf(&c.Informers[i]).Elem(), "informers", i, c.Informers[i].Name)
	}
	for i := range c.Sinks {
		e.element(reflect.ValueOf(&c.Sinks[i]).Elem(), "sinks", i, c.Sinks[i].Name)
	}
}

// anyVariable reports whether a variable of the process may be one of ours.
func anyVariable() bool {
	return slices.ContainsFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, EnvPrefix)
	})
}

// element applies the variables of one informer or sink: by its index, then by its name, which
// wins.
func (e *environment) element(section reflect.Value, list string, i int, name string) {
	at := fmt.Sprintf("%s[%d]", list, i)
	e.section(section, at, []string{list, strconv.Itoa(i)})
	if name != "" {
		e.section(section, at, []string{list, name})
	}
}

func (e *environment) section(section reflect.Value, at string, names []string) {
	for _, f := range fieldsOf(section.Type()) {
		v, path, names := section.Field(f.index), join(at, f.key), append(slices.Clone(names), f.key)
		switch {
		case f.isSection && v.Kind() == reflect.Pointer:
			e.optional(v, path, names)
		case f.isSection:
			e.section(v, path, names)
		case f.isList():
			for i := range v.Len() {
				e.section(v.Index(i), fmt.Sprintf("%s[%d]", path, i), append(names, strconv.Itoa(i)))
			}
		case f.isScalar():
			e.scalar(v, path, EnvName(names...))
		}
	}
}

// optional applies the variables of a section that may be left out. A variable for a key in it is
// what puts it in.
func (e *environment) optional(v reflect.Value, path string, names []string) {
	inner := v
	if v.IsNil() {
		inner = reflect.New(v.Type().Elem())
	}
	before := len(e.origins)
	e.section(inner.Elem(), path, names)
	if v.IsNil() && len(e.origins) > before {
		v.Set(inner)
	}
}

func (e *environment) scalar(v reflect.Value, path, name string) {
	text, ok := e.lookup(name)
	if !ok {
		return
	}
	value, err := parse(v.Type(), text)
	if err != nil {
		e.addAt(origin{text: name}, path, "%v%s", err, quote(v.Type(), text))
		return
	}
	e.origins[path] = origin{text: name}
	v.Set(reflect.ValueOf(value))
}

// serviceVariable matches what Kubernetes sets in every pod for a Service named bridge or
// bridge-something.
var serviceVariable = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// unknown reports variables that look like a key of ours and are none: they begin as a section
// does, or are misspelt by a letter. Others that begin with BRIDGE_ belong to somebody else.
func (e *environment) unknown() {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || !strings.HasPrefix(name, EnvPrefix) || slices.Contains(e.known, name) ||
			serviceVariable.MatchString(name) {
			continue
		}
		corrected := strings.TrimSuffix(plural(name+"_"), "_")
		best, list := suggest.Nearest(corrected, e.known, 2), listOf(name)
		hint := "; the reference of the configuration lists the keys"
		switch {
		case best != "":
			hint = fmt.Sprintf(": did you mean %s?", best)
		case e.lacksElement(corrected) != "":
			hint = e.lacksElement(corrected)
		case ofSection[Config](corrected):
		case list != "":
			hint = fmt.Sprintf("; a key of one of the %s has its name or number in it: %s_%s", list,
				EnvName(list, "0"), strings.TrimPrefix(name, EnvPrefix))
		default:
			continue
		}
		e.addAt(origin{text: name}, "", "no such key%s", hint)
	}
}

// lacksElement says that a variable names an informer or sink that there is not; "" where it does
// not.
func (e *environment) lacksElement(name string) string {
	for _, list := range []string{"informers", "sinks"} {
		rest, found := strings.CutPrefix(name, EnvName(list)+"_")
		if !found || !strings.Contains(rest, "_") {
			continue
		}
		names := e.elements[list]
		for i, element := range names {
			if strings.HasPrefix(rest, strconv.Itoa(i)+"_") ||
				strings.HasPrefix(rest, upperSnake(element)+"_") {
				return ""
			}
		}
		return fmt.Sprintf(": it names none of the %s, which are %s", list, strings.Join(names, ", "))
	}
	return ""
}

// plural corrects the name of a list that has lost its s: BRIDGE_SINK_NATS_SERVERS,
// BRIDGE_INFORMER_ALL_QPS.
func plural(name string) string {
	for _, list := range []string{EnvName("informers"), EnvName("sinks")} {
		if rest, found := strings.CutPrefix(name, strings.TrimSuffix(list, "S")+"_"); found {
			return list + "_" + rest
		}
	}
	return name
}

// ofSection reports whether a variable is, or begins with, the name of a section or list of T.
func ofSection[T any](name string) bool {
	return slices.ContainsFunc(fieldsOf(reflect.TypeFor[T]()), func(f field) bool {
		return !f.isScalar() && strings.HasPrefix(name+"_", EnvName(f.key)+"_")
	})
}

// listOf is the list of whose elements a variable names a key, as BRIDGE_NATS_SERVERS and
// BRIDGE_RESOURCES do; "" for none.
func listOf(name string) string {
	switch {
	case ofSection[Sink](name) || isKey[Sink](name):
		return "sinks"
	case ofSection[Informer](name) || isKey[Informer](name):
		return "informers"
	default:
		return ""
	}
}

// isKey reports whether a variable is named as a key of T. BRIDGE_NAME may be anybody's.
func isKey[T any](name string) bool {
	return name != EnvName("name") &&
		slices.ContainsFunc(fieldsOf(reflect.TypeFor[T]()), func(f field) bool {
			return name == EnvName(f.key)
		})
}
