package resource

import (
	"regexp"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// envState is how far the walk is on the way to an environment variable of a container, wherever
// containers are: in a Pod, or in the template of one.
type envState uint8

const (
	envNone       envState = iota
	envAnywhere            // not in a container
	envContainers          // in a list of containers
	envContainer           // in a container
	envVariables           // in its list of variables
	envVariable            // in a variable
)

func (s envState) member(name string) envState {
	switch s {
	case envAnywhere:
		switch name {
		case "containers", "initContainers", "ephemeralContainers":
			return envContainers
		}
		return envAnywhere
	case envContainer:
		if name == "env" {
			return envVariables
		}
		return envNone
	default:
		return envNone
	}
}

func (s envState) item() envState {
	switch s {
	case envAnywhere:
		return envAnywhere
	case envContainers:
		return envContainer
	case envVariables:
		return envVariable
	default:
		return envNone
	}
}

// envValue is the value of a variable.
var envValue = NewPaths(Path{steps: []step{{name: "value"}}})

// secretName matches names of variables that hold secrets, and some that don't: better one too
// many.
var secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|cred|auth|key|dsn|conn|salt|cert|private|signature|sas\b`)

// secretText matches values that hold a password: URLs with one before the host, private keys, and
// the settings of connections.
var secretText = regexp.MustCompile(`(?i)://[^/\s]*:[^/\s]+@|-----BEGIN|(password|pwd|accountkey|sharedaccesskey|secret|token)\s*=|^bearer\s|^eyJ`)

// secretVariable reports whether the variable that comes next looks like a secret.
func (w *rewriter) secretVariable() bool {
	if w.Peek() != '{' {
		return false
	}
	secret := false
	for name, value := range Members(w.raw[w.Pos():]) {
		text := jsonscan.Of(value)
		if text.Peek() != '"' {
			continue
		}
		switch name {
		case "name":
			secret = secret || secretName.Match(text.Text(text.Quoted()))
		case "value":
			secret = secret || secretText.Match(text.Text(text.Quoted()))
		}
	}
	return secret
}
