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
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
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
