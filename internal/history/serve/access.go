package serve

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Access is what a token may read. Names of resources, with their schemas, are open to each token.
type Access struct {
	Token string
	// Namespaces by name; "*": all of them, and what is in none.
	Namespaces []string
	// Resources as "pods" or "deployments.apps"; "*": all but Secrets, which must be named.
	Resources []string
}

// Everything is the access of a token that may read all that the history has.
func Everything(token string) Access {
	return Access{Token: token, Namespaces: []string{"*"}, Resources: []string{"*", secrets}}
}

const secrets = "secrets"

// allows reports whether objects of a resource may be read: in a namespace, or for "" and "*" in
// all of them and in none.
func (a *Access) allows(t *resourceType, namespace string) bool {
	name := t.groupResource()
	if !slices.Contains(a.Resources, name) && (name == secrets || !slices.Contains(a.Resources, "*")) {
		return false
	}
	return slices.Contains(a.Namespaces, "*") || slices.Contains(a.Namespaces, namespace)
}

// groupResource is "deployments.apps", or "pods" for the core group.
func (t *resourceType) groupResource() string {
	return strings.TrimSuffix(t.Resource+"."+t.Group, ".")
}

// accessOf is that of a request's token, nil for another. It takes the same time for each token.
func (s *Server) accessOf(r *http.Request) (found *Access) {
	token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got := sha256.Sum256([]byte(token))
	for i := range s.cfg.Access {
		want := sha256.Sum256([]byte(s.cfg.Access[i].Token))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 && isBearer {
			found = &s.cfg.Access[i]
		}
	}
	return found
}

// forbid answers as an API server does.
func (q *request) forbid(t *resourceType, namespace string) {
	where := "in all namespaces: name one of those that it may read"
	if namespace != "" {
		where = fmt.Sprintf("in the namespace %q", namespace)
	}
	q.refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("%s is forbidden: this token may not read %s %s", t.groupResource(),
			t.groupResource(), where))
}

// minToken is the fewest characters of a token.
const minToken = 16

// accessEntry is one of the file.
type accessEntry struct {
	Token      string   `yaml:"token"`
	TokenFile  string   `yaml:"tokenFile"`
	Namespaces []string `yaml:"namespaces"`
	Resources  []string `yaml:"resources"`
}

// ParseAccess reads a list of tokens and what each may read, as YAML. Its error has all problems.
func ParseAccess(text []byte) (list []Access, err error) {
	const want = "want a list of tokens, each with namespaces and resources"
	var file []accessEntry
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf(want+": %w", err)
	}
	if len(file) == 0 {
		return nil, errors.New(want)
	}
	var problems []error
	for i, entry := range file {
		refuse := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("entry %d: %s", i+1, fmt.Sprintf(format, args...)))
		}
		token := entry.Token
		if (token == "") == (entry.TokenFile == "") {
			refuse("want token or tokenFile")
			continue
		}
		if entry.TokenFile != "" {
			content, err := os.ReadFile(entry.TokenFile)
			if err != nil {
				refuse("tokenFile: %v", err)
				continue
			}
			token = strings.TrimSpace(string(content))
		}
		if len(token) < minToken {
			refuse("the token has fewer than %d characters", minToken)
		}
		if slices.ContainsFunc(list, func(a Access) bool { return a.Token == token }) {
			refuse("an entry before it has the same token")
		}
		for _, names := range []struct {
			key  string
			list []string
		}{{"namespaces", entry.Namespaces}, {"resources", entry.Resources}} {
			if len(names.list) == 0 || slices.Contains(names.list, "") {
				refuse(`%s: want names, or "*" for all`, names.key)
			}
		}
		list = append(list, Access{Token: token, Namespaces: entry.Namespaces, Resources: entry.Resources})
	}
	return list, errors.Join(problems...)
}
