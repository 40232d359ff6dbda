package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Options say where a configuration is read from.
type Options struct {
	// File is the path of the YAML file; "" for none, which leaves the defaults.
	File string
	// Data, when not nil, is read instead of the file, which then only names it in errors.
	Data []byte
	// Flags are the command-line flags that set a key, by its path: "state.dir". Only those that
	// were given on the command line count.
	Flags map[string]*pflag.Flag
	// Sections, when not nil, are the top-level keys that the caller needs. Problems with other
	// keys are not reported, and those keys have their defaults. Problems with the file as a whole
	// are.
	Sections []string
}

// Load reads a configuration, fills in defaults, and checks it. Its error holds every problem that
// was found; Problems lists them. A file that can't be read is an error of another kind.
//
// Load reads the process's environment, and looks at no global state but that.
func Load(o Options) (*Config, error) {
	data, err := o.read()
	if err != nil {
		return nil, err
	}
	l := &loader{problems: &problems{origins: origins{}}, viper: viper.New()}
	l.environment = &environment{problems: l.problems}
	l.file(o.File, data)
	l.scalars(reflect.TypeFor[Config](), nil, o.Flags)
	c, err := l.decode()
	if err != nil {
		return nil, err
	}
	l.environment.lists(c)
	l.environment.unknown()
	c.origins = l.origins
	c.fillDefaults()
	c.validate(l.problems)
	if o.Sections != nil {
		l.keep(o.Sections)
	}
	if err := l.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (o Options) read() ([]byte, error) {
	if o.Data != nil || o.File == "" {
		return o.Data, nil
	}
	data, err := os.ReadFile(o.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("configuration file %s does not exist", o.File)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return data, nil
}

// loader puts the layers together: viper holds the defaults, the file, the variables and the flags
// of the keys outside of lists, and knows which wins.
type loader struct {
	*problems
	viper       *viper.Viper
	environment *environment
}

// file hands the YAML file to viper.
func (l *loader) file(name string, data []byte) {
	r := &reader{problems: l.problems, file: name}
	l.origins[""] = origin{text: name}
	root := r.parseYAML(data)
	if root == nil {
		return
	}
	settings := r.section(root, reflect.TypeFor[Config](), "")
	if err := l.viper.MergeConfigMap(settings); err != nil {
		l.add("", "%v", err)
	}
}

// scalars binds the variables and flags of the keys outside of lists. One that can't be understood
// is reported and not bound.
func (l *loader) scalars(t reflect.Type, path []string, flags map[string]*pflag.Flag) {
	for _, f := range fieldsOf(t) {
		at := append(slices.Clip(path), f.key)
		switch {
		case f.isSection:
			l.scalars(section(f.typ), at, flags)
		case f.isScalar():
			l.bindVariable(&f, at)
			l.bindFlag(&f, strings.Join(at, "."), flags)
		}
	}
}

func (l *loader) bindVariable(f *field, at []string) {
	name, path := EnvName(at...), strings.Join(at, ".")
	text, ok := l.environment.lookup(name)
	if !ok || !l.understood(f, path, name, text) {
		return
	}
	l.origins[path] = origin{text: name}
	if err := l.viper.BindEnv(path, name); err != nil {
		l.add(path, "%v", err)
	}
}

func (l *loader) bindFlag(f *field, path string, flags map[string]*pflag.Flag) {
	flag := flags[path]
	if flag == nil || !flag.Changed || !l.understood(f, path, "--"+flag.Name, flag.Value.String()) {
		return
	}
	l.origins[path] = origin{text: "--" + flag.Name}
	if err := l.viper.BindPFlag(path, flag); err != nil {
		l.add(path, "%v", err)
	}
}

func (l *loader) understood(f *field, path, source, text string) bool {
	_, err := parse(f.typ, text)
	if err != nil {
		l.addAt(origin{text: source}, path, "%v%s", err, quote(f.typ, text))
	}
	return err == nil
}

// decode lays what viper holds over the defaults. Lists replace the default ones, they don't extend
// them.
func (l *loader) decode() (*Config, error) {
	c := base()
	if l.viper.IsSet("informers") {
		c.Informers = nil
	}
	if l.viper.IsSet("sinks") {
		c.Sinks = nil
	}
	err := l.viper.UnmarshalExact(c, viper.DecodeHook(decodeText),
		func(d *mapstructure.DecoderConfig) {
			d.TagName = "yaml"
			d.WeaklyTypedInput = false
		})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if !l.viper.IsSet("sinks") && c.State.Mode == "memory" { // it lies in the state directory
		c.Sinks = slices.DeleteFunc(c.Sinks, func(s Sink) bool { return s.History != nil })
	}
	return c, nil
}

// decodeText reads the texts of variables and flags; what comes from the file has its type already.
func decodeText(from, to reflect.Type, value any) (any, error) {
	if from.Kind() != reflect.String || from == to || !isLeaf(to) {
		return value, nil
	}
	return parse(to, value.(string))
}

func isLeaf(t reflect.Type) bool {
	f := field{typ: t, isSection: section(t) != nil}
	return f.isScalar() && t.Kind() != reflect.Interface
}
