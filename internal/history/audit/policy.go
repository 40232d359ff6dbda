package audit

import (
	"fmt"
	"strings"
)

// PolicyName is the name of the admission policy. It begins the keys of its annotations.
const PolicyName = "attribution.kubebridge.dev"

// A request that conflicts inside the API server is tried again, and each try may see another
// version. The first value of a key stays, so versions go into keys by their remainders. The last
// try is hidden only where both of its keys are taken.
var moduli = []struct {
	letter string
	n      int
}{{"a", 7}, {"b", 12}}

// Policy returns the admission policy and its binding, as YAML for kubectl apply. It refuses and
// changes nothing.
func Policy() string {
	var annotations strings.Builder
	for _, m := range moduli {
		for i := range m.n {
			fmt.Fprintf(&annotations, "  - {key: %s%d, valueExpression: "+
				"\"variables.number %% %d == %d ? variables.seen : ''\"}\n", m.letter, i, m.n, i)
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
  - {key: uid, valueExpression: variables.uid}
%[2]s---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: %[1]s
spec:
  policyName: %[1]s
  validationActions: [Audit]
`, PolicyName, annotations.String())
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
