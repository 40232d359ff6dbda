package resource

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Rules take values out of objects of any kind, before anything else sees them. They are immutable
// and safe for concurrent use.
type Rules struct {
	redactor *Redactor
	redact   *Paths
	drop     *Paths
	env      bool
}

// RulesConfig says what to take out. Neither redact nor drop may reach what identifies an object:
// see CheckRule.
type RulesConfig struct {
	// Redactor makes the fingerprints; required.
	Redactor *Redactor
	// Redact are the paths whose values, whatever kind they are of, are replaced by a fingerprint.
	Redact []Path
	// Drop are the paths whose members or items are cut out.
	Drop []Path
	// Env replaces the values of environment variables and arguments of containers whose name or
	// value looks like a secret.
	Env bool
}

// NewRules makes the Rules; nil when there is nothing to take out.
func NewRules(cfg RulesConfig) (*Rules, error) {
	if len(cfg.Redact) == 0 && len(cfg.Drop) == 0 && !cfg.Env {
		return nil, nil
	}
	if cfg.Redactor == nil {
		return nil, errors.New("rules of redaction need a redactor")
	}
	for _, p := range slices.Concat(cfg.Redact, cfg.Drop) {
		if err := CheckRule(p); err != nil {
			return nil, err
		}
	}
	redact := append(copyPaths(), cfg.Redact...)
	return &Rules{
		redactor: cfg.Redactor, redact: NewPaths(redact...), drop: NewPaths(cfg.Drop...),
		env: cfg.Env,
	}, nil
}

// copyPaths lead to the copies of an object in its own annotations: what is taken out of the object
// is in them too.
func copyPaths() []Path {
	var paths []Path
	for _, name := range copiesOfObject {
		paths = append(paths, Path{steps: []step{{name: "metadata"}, {name: "annotations"}, {name: name}}})
	}
	return paths
}

// rules returns the rules of the configuration, and the rules for a kind that is known to have
// credentials.
func (o *ParseOptions) rules() *Rules {
	if o.Redactor == nil {
		return o.Rules
	}
	known := knownPaths()[groupResource{o.Type.Group, o.Type.Resource}]
	if known == nil {
		return o.Rules
	}
	both := Rules{redactor: o.Redactor, redact: known}
	if o.Rules != nil {
		both = *o.Rules
		both.redact = known.and(o.Rules.redact)
	}
	return &both
}

// Again is for objects that were redacted before, as Redactor.Again is.
func (r *Rules) Again() *Rules {
	if r == nil {
		return nil
	}
	again := *r
	again.redactor = r.redactor.Again()
	return &again
}

// identity is what an object can't do without.
var identity = [][]string{
	{"kind"},
	{"apiVersion"},
	{"metadata", "name"},
	{"metadata", "namespace"},
	{"metadata", "uid"},
	{"metadata", "resourceVersion"},
}

// CheckRule refuses a path that may lead to what identifies an object.
func CheckRule(p Path) error {
	for _, names := range identity {
		if p.Reaches(names...) {
			return fmt.Errorf("path %q reaches %s, which "+
				"every event is made of", p, strings.Join(names, "."))
		}
	}
	return nil
}

// apply makes the object without what the rules take out. What was read of its managedFields stays.
func (r *Rules) apply(obj *Object, t Type) (*Object, error) {
	raw, err := r.rewrite(obj.Raw, r.redactor.forObject(t, obj.Namespace, obj.Name))
	if err != nil {
		return nil, err
	}
	out, err := Parse(raw, ParseOptions{Type: t})
	if err != nil {
		return nil, fmt.Errorf("%w: what the rules leave of the object: %w", ErrRedact, err)
	}
	out.Writes = obj.Writes.clone() // of managedFields, which are cut by now
	return out, nil
}

// rewrite returns the JSON without what the rules take out, otherwise byte-equal.
func (r *Rules) rewrite(raw []byte, redactor objectRedactor) ([]byte, error) {
	w := rewriter{
		Scanner: jsonscan.Of(raw), raw: raw, redactor: redactor,
		out: make([]byte, 0, len(raw)+len(raw)/8),
	}
	at := rulesHere{redact: r.redact, drop: r.drop}
	if r.env {
		at.env = envAnywhere
	}
	w.value(at)
	if err := finish(&w.Scanner); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRedact, err)
	}
	w.copyTo(len(raw))
	return slices.Clip(w.out), nil
}

// credentialPaths returns the places of credentials in kinds other than Secrets, by the kind as
// Type.String names it. docs/redaction.md has the same list, which a test compares, and says which
// versions of the projects' type definitions it was compared with.
//
// Values of Helm charts are here because charts take passwords that way. Ciphertexts (the
// encryptedData of a SealedSecret) and references to Secrets are not: they reveal nothing.
func credentialPaths() map[string][]string {
	oauthToken := []string{"authorizeToken", "refreshToken"}
	secretTemplate := func(at string) []string {
		return []string{at + ".template.data.*", at + ".template.templateFrom.*.literal"}
	}
	secretStore := []string{
		"spec.provider.fake.data.*.value", "spec.provider.vault.headers.*",
		"spec.provider.webhook.body", "spec.provider.webhook.headers.*",
	}
	crossplaneRelease := []string{"spec.forProvider.set.*.value", "spec.forProvider.values"}
	return map[string][]string{
		"applications.argoproj.io": slices.Concat(
			argoSources("operation.sync", "spec", "status.history.*",
				"status.operationState.operation.sync", "status.operationState.syncResult",
				"status.sync.comparedTo"),
			argoValues("spec.sourceHydrator.drySource",
				"status.sourceHydrator.currentOperation.sourceHydrator.drySource",
				"status.sourceHydrator.lastSuccessfulOperation.sourceHydrator.drySource"),
			// whole objects, where a directory of one's own was synced
			[]string{"operation.sync.manifests.*", "status.operationState.operation.sync.manifests.*"}),
		"applicationsets.argoproj.io": slices.Concat(
			argoSources("spec.template.spec", "spec.generators.*.*.template.spec"),
			argoValues("spec.template.spec.sourceHydrator.drySource",
				"spec.generators.*.*.template.spec.sourceHydrator.drySource"),
			[]string{"spec.templatePatch"}),
		"authconfigs.management.cattle.io": {
			"additionalClientIds.*", "applicationSecret", "clientSecret", "oauthCredential",
			"openLdapConfig.serviceAccountPassword", "privateKey", "serviceAccountCredential",
			"serviceAccountPassword", "spKey",
		},
		"challenges.acme.cert-manager.io":            {"spec.key", "spec.token"},
		"clusterexternalsecrets.external-secrets.io": secretTemplate("spec.externalSecretSpec.target"),
		"clustergenerators.generators.external-secrets.io": {
			"spec.generator.fakeSpec.data.*", "spec.generator.webhookSpec.body",
			"spec.generator.webhookSpec.headers.*",
		},
		"clusterpushsecrets.external-secrets.io": secretTemplate("spec.pushSecretSpec"),
		"clusterregistrationtokens.management.cattle.io": {
			"status.command", "status.insecureCommand", "status.insecureNodeCommand",
			"status.insecureWindowsNodeCommand", "status.manifestUrl", "status.nodeCommand", "status.token",
			"status.windowsNodeCommand",
		},
		"clustersecretstores.external-secrets.io":            secretStore,
		"externalsecrets.external-secrets.io":                secretTemplate("spec.target"),
		"fakes.generators.external-secrets.io":               {"spec.data.*"},
		"helmreleases.helm.toolkit.fluxcd.io":                {"spec.values"},
		"kubeadmconfigs.bootstrap.cluster.x-k8s.io":          kubeadm("spec"),
		"kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io":  kubeadm("spec.template.spec"),
		"kubeadmcontrolplanes.controlplane.cluster.x-k8s.io": kubeadm("spec.kubeadmConfigSpec"),
		"kubeadmcontrolplanetemplates.controlplane.cluster.x-k8s.io": kubeadm(
			"spec.template.spec.kubeadmConfigSpec"),
		"kustomizations.kustomize.toolkit.fluxcd.io":       {"spec.postBuild.substitute.*"},
		"machineconfigs.machineconfiguration.openshift.io": ignition("spec.config"),
		"oauthaccesstokens.oauth.openshift.io":             oauthToken,
		"oauthauthorizetokens.oauth.openshift.io":          {"codeChallenge", "state"},
		"oauthclients.oauth.openshift.io":                  {"additionalSecrets.*", "secret"},
		"objects.kubernetes.crossplane.io": manifests("spec.forProvider.manifest",
			"status.atProvider.manifest"),
		// Addresses of chats hold their token, and who knows a path may call the webhook.
		"providers.notification.toolkit.fluxcd.io": {"spec.address", "spec.proxy"},
		"pushsecrets.external-secrets.io":          secretTemplate("spec"),
		"receivers.notification.toolkit.fluxcd.io": {"status.url", "status.webhookPath"},
		"releases.helm.crossplane.io":              crossplaneRelease,
		"releases.helm.m.crossplane.io":            crossplaneRelease,
		"samltokens.management.cattle.io":          {"token"},
		"sealedsecrets.bitnami.com":                {"spec.template.data.*"},
		"secretstores.external-secrets.io":         secretStore,
		"tokens.management.cattle.io":              {"token"},
		"useroauthaccesstokens.oauth.openshift.io": oauthToken,
		"users.management.cattle.io":               {"password"},
		"webhooks.generators.external-secrets.io":  {"spec.body", "spec.headers.*"},
	}
}

// argoSources are argoValues of each of the places where an Application has a source or several.
func argoSources(places ...string) (paths []string) {
	for _, place := range places {
		paths = append(paths, argoValues(place+".source", place+".sources.*")...)
	}
	return paths
}

// argoValues returns the values that an Application hands to Helm, to a plugin and to Jsonnet.
func argoValues(sources ...string) (paths []string) {
	for _, source := range sources {
		for _, value := range []string{
			"directory.jsonnet.extVars.*.value", "directory.jsonnet.tlas.*.value",
			"helm.parameters.*.value", "helm.values", "helm.valuesObject", "plugin.env.*.value",
			"plugin.parameters.*.array.*", "plugin.parameters.*.map.*", "plugin.parameters.*.string",
		} {
			paths = append(paths, source+"."+value)
		}
	}
	return paths
}

// ignition returns the places of passwords, keys and files in a configuration of Ignition, and of
// what it needs to fetch them.
func ignition(at string) []string {
	paths := []string{
		at + ".ignition.proxy.httpProxy", at + ".ignition.proxy.httpsProxy",
		at + ".passwd.groups.*.passwordHash", at + ".passwd.users.*.passwordHash",
	}
	for _, resource := range []string{
		".ignition.config.append.*", ".ignition.config.merge.*", ".ignition.config.replace",
		".storage.files.*.append.*", ".storage.files.*.contents", ".storage.luks.*.keyFile",
	} {
		paths = append(paths, at+resource+".httpHeaders.*.value", at+resource+".source")
	}
	return paths
}

// kubeadm returns the places of join tokens, passwords and files in the configuration of kubeadm.
func kubeadm(at string) []string {
	const discovery = ".joinConfiguration.discovery."
	return []string{
		at + ".files.*.content", at + ".ignition.containerLinuxConfig.additionalConfig",
		at + ".initConfiguration.bootstrapTokens.*.token", at + discovery + "bootstrapToken.token",
		at + discovery + "file.kubeConfig.user.authProvider.config.*",
		at + discovery + "file.kubeConfig.user.exec.env.*.value",
		at + discovery + "tlsBootstrapToken", at + ".users.*.passwd",
	}
}

// manifests returns the places of values in whole objects that may be Secrets.
func manifests(places ...string) (paths []string) {
	for _, at := range places {
		paths = append(paths, at+".data.*", at+".metadata.annotations.*", at+".stringData.*")
	}
	return paths
}

// groupResource is a kind, whatever the version of its API.
type groupResource struct{ group, resource string }

// knownPaths are credentialPaths, to walk objects with.
var knownPaths = sync.OnceValue(func() map[groupResource]*Paths {
	known := map[groupResource]*Paths{}
	for name, texts := range credentialPaths() {
		resource, group, _ := strings.Cut(name, ".")
		paths := append(copyPaths(), mustPaths(name, texts)...)
		known[groupResource{group, resource}] = NewPaths(paths...)
	}
	return known
})

// unredacted are kinds that often hold credentials in places that are not known well enough to be
// redacted by default, and these places. docs/redaction.md has the same list.
var unredacted = sync.OnceValue(func() map[string][]Path {
	webhook := []string{"spec.acme.solvers.*.dns01.webhook.config"}
	cloudInit := func(volumes string) []string {
		return []string{volumes + ".*.cloudInitConfigDrive", volumes + ".*.cloudInitNoCloud"}
	}
	known := map[string][]Path{}
	for name, texts := range map[string][]string{
		"clusterissuers.cert-manager.io": webhook,
		"clusters.management.cattle.io": {
			"spec.amazonElasticContainerServiceConfig", "spec.azureKubernetesServiceConfig",
			"spec.genericEngineConfig", "spec.googleKubernetesEngineConfig",
			"spec.importedConfig.kubeConfig", "spec.rancherKubernetesEngineConfig",
			"status.appliedSpec", "status.failedSpec", "status.serviceAccountToken",
		},
		"controllerconfigs.machineconfiguration.openshift.io": {"spec.internalRegistryPullSecret"},
		"issuers.cert-manager.io":                             webhook,
		"virtualmachineinstances.kubevirt.io":                 cloudInit("spec.volumes"),
		"virtualmachines.kubevirt.io":                         cloudInit("spec.template.spec.volumes"),
	} {
		known[name] = mustPaths(name, texts)
	}
	return known
})

// Unredacted returns the places where objects of a type often hold credentials that are not
// redacted by default; none where nothing is known of the type.
func Unredacted(t Type) []Path { return unredacted()[t.String()] }

// UnredactedKinds returns the names of the types for which Unredacted has an answer, sorted.
func UnredactedKinds() []string { return slices.Sorted(maps.Keys(unredacted())) }

// mustPaths parses the paths of a kind, which tests do too.
func mustPaths(name string, texts []string) (paths []Path) {
	for _, text := range texts {
		p, err := ParsePath(text)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		paths = append(paths, p)
	}
	return paths
}
