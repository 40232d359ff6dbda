package audit

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of the admission policies. They begin the keys of their annotations.
const (
	PolicyName = "attribution.kubebridge.dev"
	secondName = "attribution-2.kubebridge.dev"
)

// A request that conflicts inside the API server is tried again, and each try may see another
// version. The first value of a key stays, so versions go into keys by their remainders. A try is
// hidden only where all of its keys are taken. A policy has 20 keys at most: the second one makes
// that rarer.
var (
	moduli       = []modulus{{"a", 7}, {"b", 12}}
	secondModuli = []modulus{{"c", 9}, {"d", 11}}
)

type modulus struct {
	letter string
	n      uint64
}

// key is that of a version's number.
func (m modulus) key(number uint64) string { return m.letter + strconv.FormatUint(number%m.n, 10) }

// cutPolicy returns the key of an annotation without the name of the policy, if it is one of ours.
func cutPolicy(annotation string) (key string, isOurs bool) {
	if key, isOurs = strings.CutPrefix(annotation, PolicyName+"/"); isOurs {
		return key, true
	}
	return strings.CutPrefix(annotation, secondName+"/")
}

// Policy returns the admission policies and their bindings, as YAML for kubectl apply. They refuse
// and change nothing.
func Policy() string {
	const uid = "  - {key: uid, valueExpression: variables.uid}\n"
	return policy(PolicyName, uid, moduli) + "---\n" + policy(secondName, "", secondModuli)
}

func policy(name, annotation string, keys []modulus) string {
	var annotations strings.Builder
	annotations.WriteString(annotation)
	for _, m := range keys {
		for i := range m.n {
			fmt.Fprintf(&annotations, "  - {key: %s, valueExpression: "+
				"\"variables.number %% %d == %d ? variables.seen : ''\"}\n", m.key(i), m.n, i)
		}
	}
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: %[1]s
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE, DELETE], resources: ["*/*"]}
  matchConditions:
  - {name: is-no-dry-run, expression: "!has(request.dryRun) || !request.dryRun"}
  variables:
  - name: uid
    expression: >-
      request.operation != 'CREATE' ? string(oldObject.metadata.uid) :
      (!has(request.subResource) || request.subResource == '') && has(object.metadata.uid) ?
      string(object.metadata.uid) : ''
  - name: version
    expression: "request.operation == 'CREATE' ? '' : string(oldObject.metadata.resourceVersion)"
  - name: number
    expression: "variables.version == '' ? 0 : int(variables.version)"
  - name: same
    expression: "request.operation == 'UPDATE' && object == oldObject"
  - name: seen
    expression: >-
      request.operation == 'CREATE' ? (variables.uid == '' ? '' : 'C' + variables.uid) :
      (request.operation == 'UPDATE' ? 'U' : 'D') + variables.version + (variables.same ? '=' : '')
  auditAnnotations:
%[2]s---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: %[1]s
spec:
  policyName: %[1]s
  validationActions: [Audit]
`, name, annotations.String())
}

// Level of an audit log.
type Level string

// Levels. With RequestResponse the log is larger: it has the answers too, which name the versions
// that were written. So every create and update has its user.
const (
	Metadata        Level = "Metadata"
	RequestResponse Level = "RequestResponse"
)

// LogPolicy returns the audit policy for --audit-policy-file of the API server. Reads are left out.
// The answers to requests for Secrets and tokens are left out at each level.
func LogPolicy(level Level) string {
	return fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, verbs: [get, list, watch]}
- level: Metadata
  resources:
  - {group: "", resources: [secrets, serviceaccounts/token]}
  - {group: authentication.k8s.io}
- level: RequestResponse
  resources:
  - {group: admissionregistration.k8s.io}
- level: %s
`, level)
}
