// Package config is the bridge's configuration: its schema, its defaults, how it is read and what
// it refuses.
//
// It takes in a YAML file, BRIDGE_… environment variables and command-line flags (a flag beats a
// variable, a variable beats the file, the file beats the default), and hands on one Config with
// every default filled in. Stages never see it: internal/app translates it into the small Config of
// each. The section of a sink is the sink's own (internal/sinks): the field of its kind in Sink is
// all that is here.
//
// What it promises:
//
//   - Nothing is ignored. An unknown key, a key given twice, a value of the wrong type, an
//     undefined ${VARIABLE} and a BRIDGE_ variable that names no key are errors. A setting that has
//     no effect beside another one is an error too.
//   - All problems are reported at once, each with the file and line (or the variable, or the flag)
//     that it comes from and the path of the key; misspelt names come with the nearest that exists.
//   - Secrets stay home: passwords and tokens are in no error, and are masked wherever a Config is
//     printed.
//
// Reading a configuration contacts nobody: neither the API server nor a broker. Files that hold
// credentials are read when the sink that needs them is made, so a configuration can be checked
// where its secrets are not.
//
// Everything runs in the caller's goroutine. A Config may be read from several; nobody changes it
// after Load.
package config
