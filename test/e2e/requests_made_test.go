package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// selectedFields are those that an API server selects objects of some kind by, each with a value.
var selectedFields = []string{
	"metadata.name=x", "metadata.namespace=x", "spec.nodeName=worker-1", "spec.restartPolicy=Always", "spec.schedulerName=x", "spec.serviceAccountName=x",
	"spec.hostNetwork=false", "status.phase=Running", "status.podIP=x", "status.podIPs=x", "status.nominatedNodeName=x", "spec.unschedulable=false", "type=Opaque",
	"status.replicas=0", "status.successful=0", "spec.signerName=x", "spec.driver=x", "involvedObject.name=web-5d-a", "involvedObject.kind=Pod",
	"involvedObject.namespace=x", "involvedObject.uid=x", "involvedObject.apiVersion=v1", "involvedObject.resourceVersion=x", "involvedObject.fieldPath=x",
	"reason=x", "reportingComponent=x", "source=x", "regarding.name=x", "reportingController=x", "spec.size=3", "metadata.uid=x", "spec.clusterIP=x", "spec.type=x",
	"spec.user=x", "spec.nodeName=", "status.phase=", "spec.unschedulable=", "type=",
}

// madeRequests are requests that clients rarely send: parameters in all combinations, what is
// refused, and selectors of each kind.
func (p *past) madeRequests() (list []*sentRequest) {
	add := func(method, target, body string, headers ...string) {
		r := &sentRequest{method: method, target: target, body: body, client: "made"}
		for i := 0; i < len(headers); i += 2 {
			r.headers = append(r.headers, [2]string{headers[i], headers[i+1]})
		}
		if len(headers) == 0 {
			r.headers = [][2]string{{"Accept", "application/json"}}
		}
		list = append(list, r)
	}
	get := func(target string) { add(http.MethodGet, target, "") }
	pods := "/api/v1/namespaces/" + p.lab.namespace + "/pods"
	future := "99999999"

	// Lists and watches by their versions.
	for _, version := range []string{"", "0", p.version, future, "x", "-1"} {
		for _, match := range []string{"", "Exact", "NotOlderThan", "Other"} {
			query := url.Values{}
			if version != "" {
				query.Set("resourceVersion", version)
			}
			if match != "" {
				query.Set("resourceVersionMatch", match)
			}
			for _, limit := range []string{"", "0", "2", "-1", "x"} {
				query.Del("limit")
				if limit != "" {
					query.Set("limit", limit)
				}
				get(pods + "?" + query.Encode())
			}
			query.Del("limit")
			for _, initial := range []string{"", "true", "false"} {
				query.Del("sendInitialEvents")
				if initial != "" {
					query.Set("sendInitialEvents", initial)
					get(pods + "?" + query.Encode())
				}
				if version != future || match == "Exact" || match == "Other" { // a watch of the future waits
					get(pods + "?watch=1&allowWatchBookmarks=true&" + query.Encode())
				}
			}
		}
		get(pods + "/web-5d-a?resourceVersion=" + version)
		get(pods + "/none?resourceVersion=" + version)
	}
	for _, query := range []string{
		"continue=x", "continue=x&resourceVersion=0", "continue=x&resourceVersionMatch=Exact", "continue=x&resourceVersion=" + p.version,
		"watch=true&timeoutSeconds=x", "watch=x&timeoutSeconds=1", "watch=false", "watch=0", "allowWatchBookmarks=x", "timeoutSeconds=1", "pretty=true", "unknown=1",
		"labelSelector=app%3Dweb", "labelSelector=app+in+(web,db)", "labelSelector=!app", "labelSelector=app+notin+(web)", "labelSelector=a%3D%3D%3D",
		"labelSelector=-x%3Dy", "labelSelector=x%3Dnot+a+value", "labelSelector=x>1", "labelSelector=x>y",
		"fieldSelector=metadata.name%3Dweb-5d-a", "fieldSelector=metadata.name!%3Dweb-5d-a", "fieldSelector=metadata.name", "fieldSelector=spec.image%3Dx",
		"fieldSelector=metadata.namespace%3D" + p.lab.namespace, "fieldSelector=metadata.namespace%3Dother", "fieldSelector=a%3Db%3Dc", "fieldSelector=%3Dx",
		"fieldSelector=status.phase%3DRunning,spec.nodeName%3Dworker-1", "fieldSelector=status.phase!%3DRunning", "fieldSelector=spec.hostNetwork%3Dfalse",
	} {
		get(pods + "?" + query)
	}

	// What there is not, and what no name can be.
	for _, target := range []string{
		pods + "/none", "/api/v1/namespaces/none", "/api/v1/namespaces/none/pods", "/api/v1/namespaces/none/pods/none", "/api/v1/nodes/none",
		"/apis/apps/v1/namespaces/" + p.lab.namespace + "/deployments/none", "/apis/" + p.group + "/v1/namespaces/" + p.lab.namespace + "/things/none",
		"/api/v1/namespaces/" + p.lab.namespace + "/nodes", "/api/v1/pods/web-5d-a", pods + "/UPPER", pods + "/a%20b", pods + "/..%2fx", pods + "/x%25y", pods + "/x%00y", pods + "/x%ffy",
		pods + "/" + strings.Repeat("x", 300), "/api/v1/namespaces/UPPER/pods", pods + "/web-5d-a/status", pods + "/none/status",
		"/api/v1/namespaces/" + p.lab.namespace + "/status", "/apis/" + p.group, "/healthz", "/livez", "/readyz", "/api/", "/apis/", "/api/v1/", "/apis/apps/", "/apis/apps/v1/",
	} {
		get(target)
	}

	// Forms.
	for _, accept := range []string{
		"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v2;g=meta.k8s.io", "text/html", "*/*", "application/*",
		"application/json;as=Other;v=v1;g=meta.k8s.io", "application/json;q=0.1,text/html", "nonsense",
	} {
		for _, target := range []string{pods, pods + "/web-5d-a", pods + "/none", pods + "?includeObject=None", pods + "?includeObject=Object", pods + "?includeObject=x"} {
			add(http.MethodGet, target, "", "Accept", accept)
		}
	}

	// Reviews, and how their fields are validated.
	const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	const mayList = `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`
	for _, body := range []string{
		mayList, "", "{}", "x", "[]", `{"kind":"Other","apiVersion":"authorization.k8s.io/v1"}`, `{"kind":"SelfSubjectAccessReview","apiVersion":"x/v9"}`,
		strings.Replace(mayList, "spec", "unknown", 1), strings.Replace(mayList, `"verb"`, `"unknown":1,"verb"`, 1), strings.Replace(mayList, `"verb"`, `"verb":"get","verb"`, 1),
		strings.Replace(mayList, `"list"`, `1`, 1), strings.Replace(mayList, `"resourceAttributes"`, `"nonResourceAttributes":{"path":"/version","verb":"get"},"resourceAttributes"`, 1),
		strings.Replace(mayList, `"spec"`, `"metadata":{"name":"x"},"spec"`, 1),
	} {
		for _, query := range []string{"", "?fieldValidation=Strict", "?fieldValidation=Warn", "?fieldValidation=Ignore", "?fieldValidation=x", "?dryRun=All", "?dryRun=x", "?fieldManager=m"} {
			add(http.MethodPost, reviews+query, body, "Accept", "application/json", "Content-Type", "application/json")
		}
	}
	add(http.MethodPost, reviews, mayList, "Accept", "application/json", "Content-Type", "text/plain")
	add(http.MethodPost, reviews, mayList, "Accept", "application/json")
	add(http.MethodPost, reviews, "kind: SelfSubjectAccessReview\napiVersion: authorization.k8s.io/v1\nspec: {resourceAttributes: {verb: list, resource: pods}}\n", "Accept", "application/json", "Content-Type", "application/yaml")

	// The fields by which objects of each kind are selected.
	kinds := p.listedKinds()
	names := slices.Collect(maps.Keys(kinds))
	slices.SortFunc(names, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	for _, kind := range names {
		at := "/api/" + kind.Version
		if kind.Group != "" {
			at = "/apis/" + kind.Group + "/" + kind.Version
		}
		for _, field := range selectedFields {
			get(fmt.Sprintf("%s/%s?fieldSelector=%s", at, kind.Resource, url.QueryEscape(field)))
		}
	}
	return list
}
