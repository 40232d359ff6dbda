package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kindColumns are the columns of kinds, as an API server has them. TestPast compares them.
var kindColumns = map[string][]column{
	"Pod.": {
		nameColumn, text("Ready", podReady), text("Status", podStatus),
		timed("Restarts", podRestarts), ageColumn,
		wide("IP", orElse("<none>", "status", "podIP")),
		wide("Node", orElse("<none>", "spec", "nodeName")),
		wide("Nominated Node", orElse("<none>", "status", "nominatedNodeName")),
		wide("Readiness Gates", readinessGates),
	},
	"PodTemplate.": {
		nameColumn, text("Containers", containers("name", "template", "spec")),
		text("Images", containers("image", "template", "spec")),
		text("Pod Labels", pairs("template", "metadata", "labels")),
	},
	"ReplicationController.": slices.Concat(replicaColumns, templateColumns[:2],
		[]column{wide("Selector", pairs("spec", "selector"))}),
	"Deployment.apps": slices.Concat([]column{
		nameColumn, text("Ready", ratio("readyReplicas")),
		shown("Up-to-date", number("status", "updatedReplicas")),
		shown("Available", number("status", "availableReplicas")), ageColumn,
	}, templateColumns),
	"ReplicaSet.apps": slices.Concat(replicaColumns, templateColumns),
	"StatefulSet.apps": slices.Concat([]column{
		nameColumn, text("Ready", ratio("readyReplicas")), ageColumn,
	}, templateColumns[:2]),
	"DaemonSet.apps": slices.Concat([]column{
		nameColumn, count("Desired", "status", "desiredNumberScheduled"),
		count("Current", "status", "currentNumberScheduled"),
		count("Ready", "status", "numberReady"), count("Up-to-date", "status", "updatedNumberScheduled"),
		count("Available", "status", "numberAvailable"),
		text("Node Selector", pairs("spec", "template", "spec", "nodeSelector")), ageColumn,
	}, templateColumns),
	"ControllerRevision.apps": {
		nameColumn, text("Controller", controller), shown("Revision", number("revision")), ageColumn,
	},
	"Job.batch": slices.Concat([]column{
		nameColumn, text("Status", jobStatus), text("Completions", completions),
		timed("Duration", jobDuration), ageColumn,
	}, templateColumns),
	"CronJob.batch": {
		nameColumn, text("Schedule", plainText("spec", "schedule")),
		text("Timezone", orElse("<none>", "spec", "timeZone")), typed("boolean", "Suspend", isSuspended),
		typed("integer", "Active", length("status", "active")),
		timed("Last Schedule", ageOrElse("<none>", "status", "lastScheduleTime")), ageColumn,
		wide("Containers", containers("name", "spec", "jobTemplate", "spec", "template", "spec")),
		wide("Images", containers("image", "spec", "jobTemplate", "spec", "template", "spec")),
		wide("Selector", selectorText("spec", "jobTemplate", "spec", "selector")),
	},
	"HorizontalPodAutoscaler.autoscaling": {
		nameColumn, text("Reference", kindAndName("spec", "scaleTargetRef")),
		text("Targets", scalingTargets), text("MinPods", orElse("<unset>", "spec", "minReplicas")),
		shown("MaxPods", number("spec", "maxReplicas")),
		shown("Replicas", number("status", "currentReplicas")), ageColumn,
	},
	"PodDisruptionBudget.policy": {
		nameColumn, text("Min Available", orElse("N/A", "spec", "minAvailable")),
		text("Max Unavailable", orElse("N/A", "spec", "maxUnavailable")),
		count("Allowed Disruptions", "status", "disruptionsAllowed"), ageColumn,
	},

	"Service.": {
		nameColumn, text("Type", plainText("spec", "type")),
		text("Cluster-IP", orElse("<none>", "spec", "clusterIP")), text("External-IP", externalIP),
		text("Port(s)", servicePorts), ageColumn, wide("Selector", pairs("spec", "selector")),
	},
	"Endpoints.": {nameColumn, text("Endpoints", subsets), ageColumn},
	"EndpointSlice.discovery.k8s.io": {
		nameColumn, text("AddressType", plainText("addressType")),
		text("Ports", slicePorts), text("Endpoints", sliceAddresses), ageColumn,
	},
	"Ingress.networking.k8s.io": {
		nameColumn, text("Class", orElse("<none>", "spec", "ingressClassName")),
		text("Hosts", ingressHosts), text("Address", balancers), text("Ports", ingressPorts), ageColumn,
	},
	"IngressClass.networking.k8s.io": {
		defaultNameColumn("ingressclass.kubernetes.io/is-default-class"),
		text("Controller", plainText("spec", "controller")), text("Parameters", classParameters), ageColumn,
	},
	"NetworkPolicy.networking.k8s.io": {
		nameColumn, text("Pod-Selector", selectorText("spec", "podSelector")), ageColumn,
	},
	"ServiceCIDR.networking.k8s.io": {nameColumn, text("CIDRs", joined("spec", "cidrs")), ageColumn},
	"IPAddress.networking.k8s.io":   {nameColumn, text("ParentRef", addressParent)},

	"Node.": {
		nameColumn, text("Status", nodeStatus), text("Roles", nodeRoles), ageColumn,
		text("Version", plainText("status", "nodeInfo", "kubeletVersion")),
		wide("Internal-IP", nodeAddress("InternalIP")), wide("External-IP", nodeAddress("ExternalIP")),
		wide("OS-Image", orElse("<unknown>", "status", "nodeInfo", "osImage")),
		wide("Kernel-Version", kernel),
		wide("Container-Runtime", orElse("<unknown>", "status", "nodeInfo", "containerRuntimeVersion")),
	},
	"Namespace.": {nameColumn, text("Status", plainText("status", "phase")), ageColumn},
	"ConfigMap.": {nameColumn, members("data", "binaryData"), ageColumn},
	"Secret.":    {nameColumn, text("Type", plainText("type")), members("data"), ageColumn},
	"ResourceQuota.": {
		nameColumn, text("Request", quotas(false)), text("Limit", quotas(true)), ageColumn,
	},
	"LimitRange.": {nameColumn, createdColumn},
	"Event.": {
		timed("Last Seen", lastSeen), text("Type", plainText("type")),
		text("Reason", plainText("reason")), text("Object", involved),
		wide("Subobject", plainText("involvedObject", "fieldPath")), wide("Source", eventSource),
		text("Message", func(o object) string { return strings.TrimSpace(o.text("message")) }),
		widely(timed("First Seen", firstSeen)), widely(shown("Count", eventCount)),
		widely(nameColumn),
	},

	"PersistentVolume.": {
		nameColumn, text("Capacity", orElse("0", "spec", "capacity", "storage")),
		text("Access Modes", accessModes("spec", "accessModes")),
		text("Reclaim Policy", plainText("spec", "persistentVolumeReclaimPolicy")),
		text("Status", phase), text("Claim", claimOfVolume),
		text("StorageClass", plainText("spec", "storageClassName")),
		text("VolumeAttributesClass", orElse("<unset>", "spec", "volumeAttributesClassName")),
		text("Reason", plainText("status", "reason")), ageColumn,
		wide("VolumeMode", orElse("<unset>", "spec", "volumeMode")),
	},
	"PersistentVolumeClaim.": {
		nameColumn, text("Status", phase), text("Volume", plainText("spec", "volumeName")),
		text("Capacity", ofBound(orElse("0", "status", "capacity", "storage"))),
		text("Access Modes", ofBound(accessModes("status", "accessModes"))),
		text("StorageClass", plainText("spec", "storageClassName")),
		text("VolumeAttributesClass", orElse("<unset>", "spec", "volumeAttributesClassName")), ageColumn,
		wide("VolumeMode", orElse("<unset>", "spec", "volumeMode")),
	},
	"StorageClass.storage.k8s.io": {
		defaultNameColumn("storageclass.kubernetes.io/is-default-class"),
		text("Provisioner", plainText("provisioner")),
		text("ReclaimPolicy", orElse("Delete", "reclaimPolicy")),
		text("VolumeBindingMode", orElse("Immediate", "volumeBindingMode")),
		shown("AllowVolumeExpansion", isTrue("allowVolumeExpansion")), ageColumn,
	},
	"VolumeAttributesClass.storage.k8s.io": {
		nameColumn, text("DriverName", plainText("driverName")), ageColumn,
	},
	"VolumeAttachment.storage.k8s.io": {
		nameColumn,
		{name: "Attacher", typ: "string", format: "name", cell: untimed(plainText("spec", "attacher"))},
		text("PV", plainText("spec", "source", "persistentVolumeName")),
		text("Node", plainText("spec", "nodeName")),
		typed("boolean", "Attached", isTrue("status", "attached")), ageColumn,
	},
	"CSINode.storage.k8s.io": {
		nameColumn, typed("integer", "Drivers", length("spec", "drivers")), ageColumn,
	},
	"CSIDriver.storage.k8s.io": {
		nameColumn, typed("boolean", "AttachRequired", attachRequired),
		typed("boolean", "PodInfoOnMount", isTrue("spec", "podInfoOnMount")),
		typed("boolean", "StorageCapacity", isTrue("spec", "storageCapacity")),
		text("TokenRequests", tokenRequests),
		typed("boolean", "RequiresRepublish", isTrue("spec", "requiresRepublish")),
		text("Modes", func(o object) string {
			return orNone(joined("spec", "volumeLifecycleModes")(o))
		}), ageColumn,
	},
	"CSIStorageCapacity.storage.k8s.io": {nameColumn, createdColumn},

	"Role.rbac.authorization.k8s.io":               {nameColumn, createdColumn},
	"ClusterRole.rbac.authorization.k8s.io":        {nameColumn, createdColumn},
	"RoleBinding.rbac.authorization.k8s.io":        bindingColumns,
	"ClusterRoleBinding.rbac.authorization.k8s.io": bindingColumns,
	"CertificateSigningRequest.certificates.k8s.io": {
		nameColumn, ageColumn, text("SignerName", orElse("<none>", "spec", "signerName")),
		text("Requestor", plainText("spec", "username")),
		text("RequestedDuration", requestedDuration), text("Condition", signingStatus),
	},
	"ClusterTrustBundle.certificates.k8s.io": {
		nameColumn, text("SignerName", orElse("<none>", "spec", "signerName")),
	},
	"Lease.coordination.k8s.io": {
		nameColumn, text("Holder", plainText("spec", "holderIdentity")), ageColumn,
	},
	"PriorityClass.scheduling.k8s.io": {
		nameColumn, count("Value", "value"), typed("boolean", "Global-Default", isTrue("globalDefault")),
		ageColumn, text("PreemptionPolicy", plainText("preemptionPolicy")),
	},
	"RuntimeClass.node.k8s.io": {nameColumn, text("Handler", plainText("handler")), ageColumn},
	"APIService.apiregistration.k8s.io": {
		nameColumn, text("Service", apiService), text("Available", apiAvailable), ageColumn,
	},
	"CustomResourceDefinition.apiextensions.k8s.io": {nameColumn, createdColumn},

	"MutatingWebhookConfiguration.admissionregistration.k8s.io":     webhookColumns,
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io":   webhookColumns,
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io":        policyColumns("Validations"),
	"MutatingAdmissionPolicy.admissionregistration.k8s.io":          policyColumns("Mutations"),
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": policyBindingColumns,
	"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io":   policyBindingColumns,

	"FlowSchema.flowcontrol.apiserver.k8s.io": {
		nameColumn, text("PriorityLevel", plainText("spec", "priorityLevelConfiguration", "name")),
		shown("MatchingPrecedence", number("spec", "matchingPrecedence")),
		text("DistinguisherMethod", orElse("<none>", "spec", "distinguisherMethod", "type")), ageColumn,
		text("MissingPL", isDangling),
	},
	"PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io": {
		nameColumn, text("Type", plainText("spec", "type")),
		shown("NominalConcurrencyShares", numberOrNone("spec", "limited", "nominalConcurrencyShares")),
		shown("Queues", numberOrNone("spec", "limited", "limitResponse", "queuing", "queues")),
		shown("HandSize", numberOrNone("spec", "limited", "limitResponse", "queuing", "handSize")),
		shown("QueueLengthLimit",
			numberOrNone("spec", "limited", "limitResponse", "queuing", "queueLengthLimit")), ageColumn,
	},

	"ResourceClaim.resource.k8s.io": {nameColumn, text("State", claimState), ageColumn},
	"ResourceSlice.resource.k8s.io": {
		nameColumn, text("Node", plainText("spec", "nodeName")), text("Driver", plainText("spec", "driver")),
		text("Pool", plainText("spec", "pool", "name")), ageColumn,
	},
}

var (
	createdColumn = column{
		name: "Created At", typ: "date", cell: untimed(plainText("metadata", "creationTimestamp")),
	}
	replicaColumns = []column{
		nameColumn, count("Desired", "spec", "replicas"), count("Current", "status", "replicas"),
		count("Ready", "status", "readyReplicas"), ageColumn,
	}
	// templateColumns are of kinds with pods.
	templateColumns = []column{
		wide("Containers", containers("name", "spec", "template", "spec")),
		wide("Images", containers("image", "spec", "template", "spec")),
		wide("Selector", selectorText("spec", "selector")),
	}
	bindingColumns = []column{
		nameColumn, text("Role", kindAndName("roleRef")), ageColumn,
		wide("Users", subjects("User")), wide("Groups", subjects("Group")),
		wide("ServiceAccounts", subjects("ServiceAccount")),
	}
	webhookColumns       = []column{nameColumn, typed("integer", "Webhooks", length("webhooks")), ageColumn}
	policyBindingColumns = []column{
		nameColumn, text("PolicyName", plainText("spec", "policyName")), text("ParamRef", policyParam),
		ageColumn,
	}
)

func policyColumns(what string) []column {
	return []column{
		nameColumn, typed("integer", what, length("spec", strings.ToLower(what))),
		text("ParamKind", func(o object) string {
			if !o.has("spec", "paramKind") {
				return "<unset>"
			}
			return o.text("spec", "paramKind", "apiVersion") + "/" + o.text("spec", "paramKind", "kind")
		}), ageColumn,
	}
}

// defaultNameColumn marks the class that is the default one.
func defaultNameColumn(annotation string) column {
	c := nameColumn
	c.cell = untimed(func(o object) string {
		name := o.text("metadata", "name")
		if o.text("metadata", "annotations", annotation) == "true" {
			name += " (default)"
		}
		return name
	})
	return c
}

// untimed is a cell that does not depend on the time.
func untimed[T any](cell func(o object) T) func(object, time.Time) any {
	return func(o object, _ time.Time) any { return cell(o) }
}

func typed[T any](typ, name string, cell func(o object) T) column {
	return column{name: name, typ: typ, cell: untimed(cell)}
}

func text(name string, cell func(o object) string) column { return typed("string", name, cell) }

// shown is a column that is declared as text, though its values are none.
func shown[T any](name string, cell func(o object) T) column { return typed("string", name, cell) }

func timed(name string, cell func(o object, now time.Time) string) column {
	return column{
		name: name, typ: "string",
		cell: func(o object, now time.Time) any { return cell(o, now) },
	}
}

func wide(name string, cell func(o object) string) column { return widely(text(name, cell)) }

func widely(c column) column {
	c.wide = true
	return c
}

func count(name string, path ...string) column { return typed("integer", name, number(path...)) }

func number(path ...string) func(object) int64 {
	return func(o object) int64 { return o.number(path...) }
}

func numberOrNone(path ...string) func(object) any {
	return func(o object) any {
		if !o.has(path...) {
			return "<none>"
		}
		return o.number(path...)
	}
}

func length(path ...string) func(object) int {
	return func(o object) int {
		n := 0
		for range o.items(path...) {
			n++
		}
		return n
	}
}

func isTrue(path ...string) func(object) bool {
	return func(o object) bool { return o.isTrue(path...) }
}

// members counts those of some objects.
func members(names ...string) column {
	return shown("Data", func(o object) int {
		n := 0
		for _, name := range names {
			for range o.members(name) {
				n++
			}
		}
		return n
	})
}

func plainText(path ...string) func(object) string {
	return func(o object) string { return o.text(path...) }
}

func orElse(other string, path ...string) func(object) string {
	return func(o object) string {
		if s := o.text(path...); s != "" {
			return s
		}
		return other
	}
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func ageOrElse(other string, path ...string) func(object, time.Time) string {
	return func(o object, now time.Time) string {
		if stamp := o.text(path...); stamp != "" {
			return age(stamp, now)
		}
		return other
	}
}

func ratio(ready string) func(object) string {
	return func(o object) string {
		return fmt.Sprintf("%d/%d", o.number("status", ready), o.number("spec", "replicas"))
	}
}

func kindAndName(path ...string) func(object) string {
	return func(o object) string {
		return o.text(append(slices.Clone(path), "kind")...) + "/" + o.text(append(slices.Clone(path), "name")...)
	}
}

// pairs are a=b,c=d.
func pairs(path ...string) func(object) string {
	return func(o object) string {
		var list []string
		for k, v := range o.members(path...) {
			list = append(list, k+"="+v.text())
		}
		slices.Sort(list)
		return orNone(strings.Join(list, ","))
	}
}

// selectorText is a selector of labels as kubectl shows it.
func selectorText(path ...string) func(object) string {
	return func(o object) string {
		var s metav1.LabelSelector
		if o.has(path...) && json.Unmarshal(o.find(path...).Raw(), &s) != nil {
			return "<error>"
		}
		return metav1.FormatLabelSelector(&s)
	}
}

func containers(member string, path ...string) func(object) string {
	return func(o object) string {
		return join(o.list(append(slices.Clone(path), "containers")...), ",", member)
	}
}

// join is a member of each, less what is empty.
func join(list []object, separator string, member string) string {
	var texts []string
	for _, o := range list {
		if s := o.text(member); s != "" {
			texts = append(texts, s)
		}
	}
	return strings.Join(texts, separator)
}

// joined are texts with commas between them.
func joined(path ...string) func(object) string {
	return func(o object) string {
		return strings.Join(o.texts(path...), ",")
	}
}

// first are some of a list, and how many more there are.
func first(n int, list []string, separator, none string) string {
	switch {
	case len(list) == 0:
		return none
	case len(list) > n:
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:n], separator), len(list)-n)
	}
	return strings.Join(list, separator)
}

func hasCondition(o object, kind string) (status string, found bool) {
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == kind {
			return c.text("status"), true
		}
	}
	return "", false
}

func isSuspended(o object) string {
	switch {
	case !o.has("spec", "suspend"):
		return "<unset>"
	case o.isTrue("spec", "suspend"):
		return "True"
	}
	return "False"
}
