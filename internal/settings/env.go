package settings

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// Prefix begins the name of every environment variable that sets a key: "BRIDGE_".
type Prefix string

// Name is the variable that sets the key at a path: BRIDGE_STATE_DIR for state.dir,
// BRIDGE_SINKS_LAKE_MAX_AGE or BRIDGE_SINKS_0_MAX_AGE for maxAge of the first sink, whose name is
// lake.
func (p Prefix) Name(path ...string) string {
	words := make([]string, 0, len(path))
	for _, key := range path {
		words = append(words, upperSnake(key))
	}
	return string(p) + strings.Join(words, "_")
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

// environment applies the variables to the keys inside lists, and knows the names of all that mean
// something.
type environment struct {
	*Report
	prefix Prefix
	known  []string
	// lists are the lists of sections at the top.
	lists []*list
}

// list is a list of sections at the top, and the names of its items.
type list struct {
	Field
	items []string
}

// lookup is the value of a variable. An empty one counts as not set, as deployments leave optional
// ones.
func (e *environment) lookup(name string) (string, bool) {
	e.known = append(e.known, name)
	value := os.Getenv(name)
	return value, value != ""
}

// items applies the variables of the keys in lists.
func (e *environment) items(c reflect.Value) {
	for _, f := range Fields(c.Type()) {
		if f.IsList() {
			e.lists = append(e.lists, &list{Field: f, items: itemNames(c.Field(f.Index))})
		}
	}
	if !e.any() {
		return // most of the time of loading is names that nobody has set
	}
	for _, l := range e.lists {
		for i, name := range l.items {
			e.item(c.Field(l.Index).Index(i), l.Key, i, name)
		}
	}
}

// itemNames are the values of the key `name` of each section in a list.
func itemNames(list reflect.Value) []string {
	names := make([]string, list.Len())
	if name := findField(Fields(list.Type().Elem()), "name"); name != nil {
		for i := range names {
			names[i] = list.Index(i).Field(name.Index).String()
		}
	}
	return names
}

// any reports whether a variable of the process may be one of these.
func (e *environment) any() bool {
	return slices.ContainsFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, string(e.prefix))
	})
}

// item applies the variables of one item of a list: by its index, then by its name, which wins.
func (e *environment) item(section reflect.Value, list string, i int, name string) {
	at := fmt.Sprintf("%s[%d]", list, i)
	e.section(section, at, []string{list, strconv.Itoa(i)})
	if name != "" {
		e.section(section, at, []string{list, name})
	}
}

func (e *environment) section(section reflect.Value, at string, names []string) {
	for _, f := range Fields(section.Type()) {
		v, path, names := section.Field(f.Index), Join(at, f.Key), append(slices.Clone(names), f.Key)
		switch {
		case f.IsSection && v.Kind() == reflect.Pointer:
			e.optional(v, path, names)
		case f.IsSection:
			e.section(v, path, names)
		case f.IsList():
			for i := range v.Len() {
				e.section(v.Index(i), fmt.Sprintf("%s[%d]", path, i), append(names, strconv.Itoa(i)))
			}
		case f.IsScalar():
			e.scalar(v, path, e.prefix.Name(names...))
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
	before := len(e.Origins)
	e.section(inner.Elem(), path, names)
	if v.IsNil() && len(e.Origins) > before {
		v.Set(inner)
	}
}

func (e *environment) scalar(v reflect.Value, path, name string) {
	text, ok := e.lookup(name)
	if !ok {
		return
	}
	value, err := Parse(v.Type(), text)
	if err != nil {
		e.addAt(Origin{Text: name}, path, "%v%s", err, quote(v.Type(), text))
		return
	}
	e.Origins[path] = Origin{Text: name}
	v.Set(reflect.ValueOf(value))
}

// serviceVariable matches what Kubernetes sets in every pod for a Service named bridge or
// bridge-something.
var serviceVariable = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// unknown reports variables that look like a key and are none: they begin as a section does, or are
// misspelt by a letter. Others that begin with the prefix belong to somebody else.
func (e *environment) unknown(config reflect.Type) {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || !strings.HasPrefix(name, string(e.prefix)) ||
			slices.Contains(e.known, name) || serviceVariable.MatchString(name) {
			continue
		}
		corrected := strings.TrimSuffix(e.plural(name+"_"), "_")
		best, list := suggest.Nearest(corrected, e.known, 2), e.listOf(name)
		hint := "; the reference of the configuration lists the keys"
		switch {
		case best != "":
			hint = fmt.Sprintf(": did you mean %s?", best)
		case e.lacksItem(corrected) != "":
			hint = e.lacksItem(corrected)
		case e.ofSection(config, corrected):
		case list != "":
			hint = fmt.Sprintf("; a key of one of the %s has its name or number in it: %s_%s", list,
				e.prefix.Name(list, "0"), strings.TrimPrefix(name, string(e.prefix)))
		default:
			continue
		}
		e.addAt(Origin{Text: name}, "", "no such key%s", hint)
	}
}

// lacksItem says that a variable names an item of a list that there is not; "" where it does not.
func (e *environment) lacksItem(name string) string {
	for _, l := range e.lists {
		rest, found := strings.CutPrefix(name, e.prefix.Name(l.Key)+"_")
		if !found || !strings.Contains(rest, "_") {
			continue
		}
		for i, item := range l.items {
			if strings.HasPrefix(rest, strconv.Itoa(i)+"_") ||
				strings.HasPrefix(rest, upperSnake(item)+"_") {
				return ""
			}
		}
		return fmt.Sprintf(": it names none of the %s, which are %s", l.Key,
			strings.Join(l.items, ", "))
	}
	return ""
}

// plural corrects the name of a list that has lost its s: BRIDGE_SINK_NATS_SERVERS,
// BRIDGE_INFORMER_ALL_QPS.
func (e *environment) plural(name string) string {
	for _, l := range e.lists {
		list := e.prefix.Name(l.Key)
		if rest, found := strings.CutPrefix(name, strings.TrimSuffix(list, "S")+"_"); found {
			return list + "_" + rest
		}
	}
	return name
}

// ofSection reports whether a variable is, or begins with, the name of a section or list of a
// section.
func (e *environment) ofSection(of reflect.Type, name string) bool {
	return slices.ContainsFunc(Fields(of), func(f Field) bool {
		return !f.IsScalar() && strings.HasPrefix(name+"_", e.prefix.Name(f.Key)+"_")
	})
}

// listOf is the list of whose items a variable names a key, as BRIDGE_NATS_SERVERS and
// BRIDGE_RESOURCES do; "" for none.
func (e *environment) listOf(name string) (found string) {
	for _, l := range e.lists {
		item := section(l.Type.Elem())
		if e.ofSection(item, name) || e.isKey(item, name) {
			found = l.Key
		}
	}
	return found
}

// isKey reports whether a variable is named as a key of a section. BRIDGE_NAME may be anybody's.
func (e *environment) isKey(of reflect.Type, name string) bool {
	return name != e.prefix.Name("name") &&
		slices.ContainsFunc(Fields(of), func(f Field) bool { return name == e.prefix.Name(f.Key) })
}
