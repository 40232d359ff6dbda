// Package terminal prints the answers of commands: tables, JSON and YAML, texts that a terminal may
// be given, and lines that are redrawn while a command works. It knows neither commands nor
// configuration.
package terminal
