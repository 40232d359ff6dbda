// Package settings reads a configuration: a struct whose tags say what its keys are called, what
// values they take, and their defaults.
//
// It takes in a YAML file, environment variables and command-line flags. A flag beats a variable, a
// variable beats the file, and the file beats the default. It hands on the struct, where each value
// came from, and all that is wrong, each with its line or its variable and the path of its key. It
// knows no key of the bridge: package config has those, and what they mean together.
//
// Everything runs in the caller's goroutine.
package settings

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// Reader says how a configuration is read.
type Reader struct {
	// File names the YAML file in errors, and Data is what is in it; nil for no file.
	File string
	Data []byte
	// Flags are the command-line flags that set a key, by its path: "state.dir". Only those that
	// were given on the command line count.
	Flags map[string]*pflag.Flag
	// Prefix is that of the environment variables.
	Prefix Prefix
	// OtherNames are words that other tools have for a key.
	OtherNames map[string]string
}

// Decode lays the file, the variables and the flags over what config, a pointer to a struct, holds:
// its defaults. A list replaces the one that config has. Problems are added to the report, and so
// are the origins of what was given. Its error is one of the program, not of the file.
//
// The items of lists do not have their variables yet; Items does that.
func (r *Reader) Decode(config any, report *Report) (*Items, error) {
	v := reflect.ValueOf(config).Elem()
	l := &loader{Report: report, viper: viper.New()}
	l.environment = &environment{Report: report, prefix: r.Prefix}
	l.Origins[""] = Origin{Text: r.File}
	if err := l.file(r, v.Type()); err != nil {
		return nil, err
	}
	l.scalars(v.Type(), nil, r.Flags)
	for _, f := range Fields(v.Type()) {
		if f.IsList() && l.viper.IsSet(f.Key) {
			v.Field(f.Index).SetZero()
		}
	}
	err := l.viper.UnmarshalExact(config, viper.DecodeHook(decodeText),
		func(d *mapstructure.DecoderConfig) {
			d.TagName = "yaml"
			d.WeaklyTypedInput = false
		})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return &Items{config: v, environment: l.environment}, nil
}

// Items are the items of the lists in a configuration that was decoded.
type Items struct {
	config      reflect.Value
	environment *environment
}

// Apply applies the variables of the keys in lists, and reports those that set nothing.
func (i *Items) Apply() {
	i.environment.items(i.config)
	i.environment.unknown(i.config.Type())
}

// loader puts the layers together: viper holds the defaults, the file, the variables and the flags
// of the keys outside of lists, and knows which wins.
type loader struct {
	*Report
	viper       *viper.Viper
	environment *environment
}

// file hands the YAML file to viper.
func (l *loader) file(from *Reader, config reflect.Type) error {
	r := &reader{Report: l.Report, file: from.File, otherNames: from.OtherNames}
	root := r.parseYAML(from.Data)
	if root == nil {
		return nil
	}
	if err := l.viper.MergeConfigMap(r.section(root, config, "")); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// scalars binds the variables and flags of the keys outside of lists. One that can't be understood
// is reported and not bound.
func (l *loader) scalars(t reflect.Type, path []string, flags map[string]*pflag.Flag) {
	for _, f := range Fields(t) {
		at := append(slices.Clip(path), f.Key)
		switch {
		case f.IsSection:
			l.scalars(section(f.Type), at, flags)
		case f.IsScalar():
			l.bindVariable(&f, at)
			l.bindFlag(&f, strings.Join(at, "."), flags)
		}
	}
}

func (l *loader) bindVariable(f *Field, at []string) {
	name, path := l.environment.prefix.Name(at...), strings.Join(at, ".")
	text, ok := l.environment.lookup(name)
	if !ok || !l.understood(f, path, name, text) {
		return
	}
	l.Origins[path] = Origin{Text: name}
	if err := l.viper.BindEnv(path, name); err != nil {
		l.Add(path, "%v", err)
	}
}

func (l *loader) bindFlag(f *Field, path string, flags map[string]*pflag.Flag) {
	flag := flags[path]
	if flag == nil || !flag.Changed || !l.understood(f, path, "--"+flag.Name, flag.Value.String()) {
		return
	}
	l.Origins[path] = Origin{Text: "--" + flag.Name}
	if err := l.viper.BindPFlag(path, flag); err != nil {
		l.Add(path, "%v", err)
	}
}

func (l *loader) understood(f *Field, path, source, text string) bool {
	_, err := Parse(f.Type, text)
	if err != nil {
		l.addAt(Origin{Text: source}, path, "%v%s", err, quote(f.Type, text))
	}
	return err == nil
}

// decodeText reads the texts of variables and flags; what comes from the file has its type already.
func decodeText(from, to reflect.Type, value any) (any, error) {
	if from.Kind() != reflect.String || from == to || !isLeaf(to) {
		return value, nil
	}
	return Parse(to, value.(string))
}

func isLeaf(t reflect.Type) bool {
	f := Field{Type: t, IsSection: section(t) != nil}
	return f.IsScalar() && t.Kind() != reflect.Interface
}

// Fill sets the keys of a section that were not given to the defaults of their tags. With
// inLists it also looks into the items of lists.
func Fill(section reflect.Value, path string, given Origins, inLists bool) {
	for _, f := range Fields(section.Type()) {
		v, at := section.Field(f.Index), Join(path, f.Key)
		switch {
		case f.IsSection:
			if v.Kind() == reflect.Pointer {
				if v = v.Elem(); !v.IsValid() {
					continue // a section that is left out has no defaults: it is off
				}
			}
			Fill(v, at, given, inLists)
		case f.IsList():
			for i := 0; inLists && i < v.Len(); i++ {
				Fill(v.Index(i), fmt.Sprintf("%s[%d]", at, i), given, inLists)
			}
		case f.HasDefault:
			// A key that was given keeps its value even where that is zero: "resync: 0s" and
			// "address: ''" mean something.
			if _, ok := given[at]; !ok && v.IsZero() {
				v.Set(reflect.ValueOf(mustParse(&f)))
			}
		}
	}
}

// mustParse reads the default of a tag, which a test has read before.
func mustParse(f *Field) any {
	v, err := Parse(f.Type, f.Default)
	if err != nil {
		panic(fmt.Sprintf("settings: default of %s: %v", f.Key, err))
	}
	return v
}

// Expand puts the values of environment variables in the place of ${NAME}; $${ is a literal ${.
// What comes out of a variable is never expanded again, nor read as YAML: a password may hold
// anything.
func Expand(text string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(literal + "${")
			text = after
			continue
		}
		name, rest, found := strings.Cut(after, "}")
		if !found || !isVariable(name) {
			return "", fmt.Errorf("${ without the name of a variable and }; write $${ for a literal ${")
		}
		value, ok := lookup(name)
		if !ok {
			return "", fmt.Errorf("environment variable %s is not set", name)
		}
		out.WriteString(before + value)
		text = rest
	}
}

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// Node is a configuration as YAML: secrets masked, values that came from variables as the file has
// them, and without the sections that are not there.
func (o Origins) Node(config any) (*yaml.Node, error) {
	var doc yaml.Node
	if err := doc.Encode(config); err != nil {
		return nil, err
	}
	o.restoreReferences(&doc, "")
	dropAbsent(&doc)
	return &doc, nil
}

// restoreReferences writes values that came from variables as the file has them: ${NAME}. A secret
// that is a variable as a whole is shown as that too. Text around a variable may be a part of the
// secret, so then it stays masked.
func (o Origins) restoreReferences(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			o.restoreReferences(n.Content[i+1], Join(path, n.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			o.restoreReferences(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		from := o[path]
		masked := strings.Contains(n.Value, Masked) && onlyVariable.MatchString(from.Reference)
		if from.Value != "" && (n.Value == from.Value || masked) {
			n.SetString(from.Reference)
		}
	}
}

var onlyVariable = regexp.MustCompile(`^\$\{\w+\}$`)

// dropAbsent takes the sections out that are not there: a reader takes the name alone for one with
// defaults.
func dropAbsent(n *yaml.Node) {
	kept := n.Content[:0]
	for i := 0; i < len(n.Content); i++ {
		if n.Kind == yaml.MappingNode {
			key, value := n.Content[i], n.Content[i+1]
			i++
			if isNull(value) {
				continue
			}
			kept = append(kept, key)
		}
		dropAbsent(n.Content[i])
		kept = append(kept, n.Content[i])
	}
	n.Content = kept
}

// Field is one key of a section: what the struct tags say of it.
type Field struct {
	Key        string // as in YAML: "labelSelector"
	Index      int    // of the struct field
	Type       reflect.Type
	Default    string // as it would be written in YAML
	HasDefault bool
	Allowed    []string // the values of a fixed set; nil for any
	Example    string
	IsSection  bool // a struct, or a pointer to one
}

// knownFields are those of each section that was asked for: reflect.Type -> []Field.
var knownFields sync.Map

// Fields lists the keys of a section, in the order of the struct. The list is shared.
func Fields(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field) //nolint:forcetypeassert // nothing else is stored
	}
	var list []Field
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		value, given := f.Tag.Lookup("default")
		list = append(list, Field{
			Key: key, Index: i, Type: f.Type,
			Default: value, HasDefault: given,
			Allowed:   strings.Fields(f.Tag.Get("oneof")),
			Example:   f.Tag.Get("example"),
			IsSection: section(f.Type) != nil,
		})
	}
	knownFields.Store(t, list)
	return list
}

// section is the struct type behind a type of a section, or nil.
func section(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// IsList reports whether a key holds a list of sections.
func (f *Field) IsList() bool {
	return f.Type.Kind() == reflect.Slice && section(f.Type.Elem()) != nil
}

// IsScalar reports whether one text holds the whole value. It may be a list of texts separated by
// commas.
func (f *Field) IsScalar() bool {
	return !f.IsSection && !f.IsList() && f.Type.Kind() != reflect.Map
}

// wanted describes the value of a key that is a scalar.
func (f *Field) wanted() string {
	switch kind := f.Type.Kind(); {
	case f.Example != "":
		return fmt.Sprintf("a string such as %q", f.Example)
	case f.Type == durationType:
		return "a duration such as 30s"
	case f.Type == sizeType:
		return "a size such as 64MiB"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.String:
		return "a string"
	default:
		return "a number"
	}
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	secretType   = reflect.TypeFor[Secret]()
	textsType    = reflect.TypeFor[[]string]()
	urlsType     = reflect.TypeFor[[]URL]()
)

// Join extends the path of a key.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
