package resource

// copiesOfObject are the annotations in which tools keep a copy of the whole object, some of them
// compressed. A rule that takes a value out of an object takes it out of these copies too.
var copiesOfObject = []string{
	"banzaicloud.com/last-applied",
	"kapp.k14s.io/original",
	"ksonnet.io/managed",
	"kubectl.kubernetes.io/last-applied-configuration",
	"objectset.rio.cattle.io/applied",
}

// harmlessAnnotations are the annotations of core Secrets that stay readable. Every other one is
// replaced, because some hold a secret: OpenShift keeps a service account's token in
// openshift.io/token-secret.value, and external-secrets an unkeyed hash of the data in
// reconcile.external-secrets.io/data-hash.
//
// A name belongs here when the value only names things: objects, hosts, modes, times.
// docs/redaction.md has the same list, and a test compares them.
var harmlessAnnotations = map[string]bool{
	"argocd.argoproj.io/compare-options":                 true,
	"argocd.argoproj.io/hook":                            true,
	"argocd.argoproj.io/hook-delete-policy":              true,
	"argocd.argoproj.io/sync-options":                    true,
	"argocd.argoproj.io/sync-wave":                       true,
	"argocd.argoproj.io/tracking-id":                     true,
	"cert-manager.io/allow-direct-injection":             true,
	"cert-manager.io/alt-names":                          true,
	"cert-manager.io/certificate-name":                   true,
	"cert-manager.io/common-name":                        true,
	"cert-manager.io/ip-sans":                            true,
	"cert-manager.io/issuer-group":                       true,
	"cert-manager.io/issuer-kind":                        true,
	"cert-manager.io/issuer-name":                        true,
	"cert-manager.io/uri-sans":                           true,
	"helm.sh/hook":                                       true,
	"helm.sh/hook-delete-policy":                         true,
	"helm.sh/hook-weight":                                true,
	"helm.sh/resource-policy":                            true,
	"kubernetes.io/service-account.name":                 true,
	"kubernetes.io/service-account.uid":                  true,
	"kustomize.toolkit.fluxcd.io/prune":                  true,
	"kustomize.toolkit.fluxcd.io/reconcile":              true,
	"kustomize.toolkit.fluxcd.io/ssa":                    true,
	"meta.helm.sh/release-name":                          true,
	"meta.helm.sh/release-namespace":                     true,
	"openshift.io/token-secret.name":                     true,
	"sealedsecrets.bitnami.com/cluster-wide":             true,
	"sealedsecrets.bitnami.com/managed":                  true,
	"sealedsecrets.bitnami.com/namespace-wide":           true,
	"sealedsecrets.bitnami.com/patch":                    true,
	"service.beta.openshift.io/expiry":                   true,
	"service.beta.openshift.io/originating-service-name": true,
	"service.beta.openshift.io/originating-service-uid":  true,
}
