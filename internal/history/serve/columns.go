package serve

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kindColumns are the columns of kinds, as kubectl users know them.
var kindColumns = map[string][]column{
	"Pod.": {
		nameColumn, text("Ready", podReady), text("Status", podStatus), text("Restarts", podRestarts),
		ageColumn,
		wide("IP", orNone("status", "podIP")), wide("Node", orNone("spec", "nodeName")),
		wide("Nominated Node", orNone("status", "nominatedNodeName")),
		wide("Readiness Gates", func(object) string { return "<none>" }),
	},
	"Deployment.apps": append([]column{
		nameColumn, text("Ready", ratio("readyReplicas")),
		count("Up-to-date", "status", "updatedReplicas"),
		count("Available", "status", "availableReplicas"), ageColumn,
	}, templateColumns...),
	"ReplicaSet.apps": append([]column{
		nameColumn, count("Desired", "spec", "replicas"), count("Current", "status", "replicas"),
		count("Ready", "status", "readyReplicas"), ageColumn,
	}, templateColumns...),
	"StatefulSet.apps": append([]column{nameColumn, text("Ready", ratio("readyReplicas")), ageColumn},
		templateColumns[:2]...),
	"DaemonSet.apps": append([]column{
		nameColumn, count("Desired", "status", "desiredNumberScheduled"),
		count("Current", "status", "currentNumberScheduled"),
		count("Ready", "status", "numberReady"), count("Up-to-date", "status", "updatedNumberScheduled"),
		count("Available", "status", "numberAvailable"),
		text("Node Selector", pairs("spec", "template", "spec", "nodeSelector")), ageColumn,
	}, templateColumns...),
	"Job.batch": {nameColumn, text("Status", jobStatus), text("Completions", completions), ageColumn},
	"CronJob.batch": {
		nameColumn, text("Schedule", plainText("spec", "schedule")),
		text("Timezone", orNone("spec", "timeZone")),
		text("Suspend",
			func(o object) string { return strconv.FormatBool(o.at("spec", "suspend") == true) }),
		{
			name: "Active", typ: "integer",
			cell: func(o object, _ time.Time) any { return len(o.list("status", "active")) },
		},
		{name: "Last Schedule", typ: "string", cell: func(o object, now time.Time) any {
			if stamp := o.text("status", "lastScheduleTime"); stamp != "" {
				return age(stamp, now)
			}
			return "<none>"
		}},
		ageColumn,
	},
	"Service.": {
		nameColumn, text("Type", plainText("spec", "type")),
		text("Cluster-IP", orNone("spec", "clusterIP")), text("External-IP", externalIP),
		text("Port(s)", servicePorts), ageColumn, wide("Selector", pairs("spec", "selector")),
	},
	"Node.": {
		nameColumn, text("Status", nodeStatus), text("Roles", nodeRoles), ageColumn,
		text("Version", plainText("status", "nodeInfo", "kubeletVersion")),
		wide("Internal-IP", nodeAddress("InternalIP")), wide("External-IP", nodeAddress("ExternalIP")),
		wide("OS-Image", plainText("status", "nodeInfo", "osImage")),
		wide("Kernel-Version", plainText("status", "nodeInfo", "kernelVersion")),
		wide("Container-Runtime", plainText("status", "nodeInfo", "containerRuntimeVersion")),
	},
	"Namespace.": {nameColumn, text("Status", plainText("status", "phase")), ageColumn},
	"ConfigMap.": {nameColumn, members("data", "binaryData"), ageColumn},
	"Secret.":    {nameColumn, text("Type", plainText("type")), members("data"), ageColumn},
	"PersistentVolumeClaim.": {
		nameColumn, text("Status", plainText("status", "phase")),
		text("Volume", plainText("spec", "volumeName")),
		text("Capacity", plainText("status", "capacity", "storage")), text("Access Modes", accessModes),
		text("StorageClass", plainText("spec", "storageClassName")), ageColumn,
	},
	"PersistentVolume.": {
		nameColumn, text("Capacity", plainText("spec", "capacity", "storage")),
		text("Access Modes", accessModes),
		text("Reclaim Policy", plainText("spec", "persistentVolumeReclaimPolicy")),
		text("Status", plainText("status", "phase")),
		text("Claim", func(o object) string {
			return strings.Trim(o.text("spec", "claimRef", "namespace")+"/"+o.text("spec", "claimRef", "name"), "/")
		}),
		text("StorageClass", plainText("spec", "storageClassName")), ageColumn,
	},
	"Ingress.networking.k8s.io": {
		nameColumn, text("Class", orNone("spec", "ingressClassName")),
		text("Hosts", func(o object) string {
			return join(o.list("spec", "rules"), "*", func(r object) string { return r.text("host") })
		}), text("Address", func(o object) string {
			return join(o.list("status", "loadBalancer", "ingress"), "",
				func(i object) string { return i.text("ip") + i.text("hostname") })
		}), ageColumn,
	},
	"Event.": {
		{
			name: "Last Seen", typ: "string",
			cell: func(o object, now time.Time) any { return age(o.text("lastTimestamp"), now) },
		},
		text("Type", plainText("type")), text("Reason", plainText("reason")),
		text("Object", func(o object) string {
			return strings.ToLower(o.text("involvedObject", "kind")) + "/" + o.text("involvedObject", "name")
		}), text("Message", plainText("message")),
	},
}

// templateColumns are of kinds with pods.
var templateColumns = []column{
	wide("Containers", func(o object) string {
		return join(o.list("spec", "template", "spec", "containers"), "",
			func(c object) string { return c.text("name") })
	}),
	wide("Images", func(o object) string {
		return join(o.list("spec", "template", "spec", "containers"), "",
			func(c object) string { return c.text("image") })
	}),
	wide("Selector", pairs("spec", "selector", "matchLabels")),
}

func text(name string, cell func(o object) string) column {
	return column{name: name, typ: "string", cell: func(o object, _ time.Time) any { return cell(o) }}
}

func wide(name string, cell func(o object) string) column {
	c := text(name, cell)
	c.wide = true
	return c
}

func count(name string, path ...string) column {
	return column{
		name: name, typ: "integer",
		cell: func(o object, _ time.Time) any { return o.number(path...) },
	}
}

// members counts those of some objects.
func members(names ...string) column {
	return column{name: "Data", typ: "integer", cell: func(o object, _ time.Time) any {
		n := 0
		for _, name := range names {
			m, _ := o.at(name).(map[string]any)
			n += len(m)
		}
		return n
	}}
}

func plainText(path ...string) func(object) string {
	return func(o object) string { return o.text(path...) }
}

func orNone(path ...string) func(object) string {
	return func(o object) string {
		if s := o.text(path...); s != "" {
			return s
		}
		return "<none>"
	}
}

func ratio(ready string) func(object) string {
	return func(o object) string {
		return fmt.Sprintf("%d/%d", o.number("status", ready), o.number("spec", "replicas"))
	}
}

// pairs are a=b,c=d.
func pairs(path ...string) func(object) string {
	return func(o object) string {
		m, _ := o.at(path...).(map[string]any)
		var list []string
		for k, v := range m {
			list = append(list, k+"="+textOf(v))
		}
		slices.Sort(list)
		if len(list) == 0 {
			return "<none>"
		}
		return strings.Join(list, ",")
	}
}

func join(list []object, none string, of func(object) string) string {
	var texts []string
	for _, o := range list {
		if s := of(o); s != "" {
			texts = append(texts, s)
		}
	}
	if len(texts) == 0 {
		return none
	}
	return strings.Join(texts, ",")
}

func podReady(o object) string {
	ready := 0
	for _, c := range o.list("status", "containerStatuses") {
		if c.at("ready") == true {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(o.list("spec", "containers")))
}

func podRestarts(o object) string {
	var n int64
	for _, c := range o.list("status", "containerStatuses") {
		n += c.number("restartCount")
	}
	return strconv.FormatInt(n, 10)
}

// podStatus returns what kubectl shows: why a container does not run, else the phase.
func podStatus(o object) string {
	reason := o.text("status", "phase")
	if s := o.text("status", "reason"); s != "" {
		reason = s
	}
	init := o.list("status", "initContainerStatuses")
	for i, c := range init {
		state := c.text("state", "terminated", "exitCode")
		switch why := c.text("state", "waiting", "reason"); {
		case state == "0", c.at("started") == true:
			continue
		case c.text("state", "terminated", "reason") != "":
			return "Init:" + c.text("state", "terminated", "reason")
		case state != "":
			return "Init:ExitCode:" + state
		case why != "" && why != "PodInitializing":
			return "Init:" + why
		}
		return fmt.Sprintf("Init:%d/%d", i, len(o.list("spec", "initContainers")))
	}
	running := false
	for _, c := range slices.Backward(o.list("status", "containerStatuses")) {
		switch {
		case c.text("state", "waiting", "reason") != "":
			reason = c.text("state", "waiting", "reason")
		case c.text("state", "terminated", "reason") != "":
			reason = c.text("state", "terminated", "reason")
		case c.at("ready") == true && c.at("state", "running") != nil:
			running = true
		}
	}
	if reason == "Completed" && running {
		reason = "Running"
	}
	if o.text("metadata", "deletionTimestamp") != "" {
		return "Terminating"
	}
	return reason
}

func hasCondition(o object, kind string) (status string, found bool) {
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == kind {
			return c.text("status"), true
		}
	}
	return "", false
}

func jobStatus(o object) string {
	for _, kind := range []string{"Complete", "Failed", "Suspended"} {
		if status, _ := hasCondition(o, kind); status == "True" {
			return kind
		}
	}
	return "Running"
}

func completions(o object) string {
	wanted := o.text("spec", "completions")
	if wanted == "" {
		wanted = "1"
	}
	return fmt.Sprintf("%d/%s", o.number("status", "succeeded"), wanted)
}

func externalIP(o object) string {
	addresses := join(o.list("status", "loadBalancer", "ingress"), "",
		func(i object) string { return i.text("ip") + i.text("hostname") })
	switch {
	case addresses != "":
		return addresses
	case o.text("spec", "type") == "LoadBalancer":
		return "<pending>"
	case o.text("spec", "type") == "ExternalName":
		return o.text("spec", "externalName")
	}
	return "<none>"
}

func servicePorts(o object) string {
	return join(o.list("spec", "ports"), "<none>", func(p object) string {
		port := p.text("port")
		if node := p.text("nodePort"); node != "" && node != "0" {
			port += ":" + node
		}
		return port + "/" + p.text("protocol")
	})
}

func nodeStatus(o object) string {
	status, found := hasCondition(o, "Ready")
	text := "NotReady"
	switch {
	case !found:
		text = "Unknown"
	case status == "True":
		text = "Ready"
	}
	if o.at("spec", "unschedulable") == true {
		text += ",SchedulingDisabled"
	}
	return text
}

func nodeRoles(o object) string {
	labels, _ := o.at("metadata", "labels").(map[string]any)
	var roles []string
	for name := range labels {
		if role, found := strings.CutPrefix(name, "node-role.kubernetes.io/"); found && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	if len(roles) == 0 {
		return "<none>"
	}
	return strings.Join(roles, ",")
}

func nodeAddress(kind string) func(object) string {
	return func(o object) string {
		return join(o.list("status", "addresses"), "<none>", func(a object) string {
			if a.text("type") == kind {
				return a.text("address")
			}
			return ""
		})
	}
}

// accessModes are short, as kubectl has them.
func accessModes(o object) string {
	short := map[string]string{
		"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX",
		"ReadWriteOncePod": "RWOP",
	}
	modes, _ := o.at("spec", "accessModes").([]any)
	var list []string
	for _, mode := range modes {
		list = append(list, short[textOf(mode)])
	}
	return strings.Join(list, ",")
}
