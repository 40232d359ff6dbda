package serve

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// balancers are the addresses of a load balancer, sorted.
func balancers(o object) string {
	var list []string
	for _, i := range o.list("status", "loadBalancer", "ingress") {
		if address := cmp.Or(i.text("ip"), i.text("hostname")); address != "" {
			list = append(list, address)
		}
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

func externalIP(o object) string {
	own := joined("spec", "externalIPs")(o)
	switch o.text("spec", "type") {
	case "ClusterIP", "NodePort":
		return orNone(own)
	case "LoadBalancer":
		return cmp.Or(strings.Trim(balancers(o)+","+own, ","), "<pending>")
	case "ExternalName":
		return o.text("spec", "externalName")
	}
	return "<unknown>"
}

func servicePorts(o object) string {
	var list []string
	for _, p := range o.list("spec", "ports") {
		port := p.text("port")
		if p.number("nodePort") > 0 {
			port += ":" + p.text("nodePort")
		}
		list = append(list, port+"/"+p.text("protocol"))
	}
	return orNone(strings.Join(list, ","))
}

// subsets are the addresses of Endpoints.
func subsets(o object) string {
	var list []string
	for _, s := range o.list("subsets") {
		ports := s.list("ports")
		for _, p := range ports {
			for _, a := range s.list("addresses") {
				list = append(list, net.JoinHostPort(a.text("ip"), p.text("port")))
			}
		}
		for _, a := range s.list("addresses") {
			if len(ports) == 0 {
				list = append(list, a.text("ip"))
			}
		}
	}
	if len(o.list("subsets")) == 0 {
		return "<none>"
	}
	return first(3, list, ",", "")
}

func slicePorts(o object) string {
	var list []string
	for _, p := range o.list("ports") {
		switch {
		case p.text("port") != "":
			list = append(list, p.text("port"))
		case p.find("name").Exists():
			list = append(list, p.text("name"))
		default:
			list = append(list, "*")
		}
	}
	return first(3, list, ",", "<unset>")
}

func sliceAddresses(o object) string {
	var list []string
	for _, e := range o.list("endpoints") {
		list = append(list, e.texts("addresses")...)
	}
	return first(3, list, ",", "<unset>")
}

func ingressHosts(o object) string {
	rules := o.list("spec", "rules")
	var list []string
	for _, r := range rules {
		if len(list) == 3 {
			return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-3)
		}
		if host := r.text("host"); host != "" {
			list = append(list, host)
		}
	}
	return cmp.Or(strings.Join(list, ","), "*")
}

func ingressPorts(o object) string {
	if len(o.list("spec", "tls")) > 0 {
		return "80, 443"
	}
	return "80"
}

func classParameters(o object) string {
	if !o.has("spec", "parameters") {
		return "<none>"
	}
	p := func(name string) string { return o.text("spec", "parameters", name) }
	kind := p("kind")
	if o.find("spec", "parameters", "apiGroup").Exists() {
		kind += "." + p("apiGroup")
	}
	return kind + "/" + p("name")
}

func addressParent(o object) string {
	if !o.has("spec", "parentRef") {
		return "<none>"
	}
	p := func(name string) string { return o.text("spec", "parentRef", name) }
	text := strings.ToLower(strings.TrimSuffix(p("resource")+"."+p("group"), "."))
	if p("namespace") != "" {
		text += "/" + p("namespace")
	}
	return text + "/" + p("name")
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
	if o.isTrue("spec", "unschedulable") {
		text += ",SchedulingDisabled"
	}
	return text
}

func nodeRoles(o object) string {
	var roles []string
	for name, value := range o.members("metadata", "labels") {
		role, isRole := strings.CutPrefix(name, "node-role.kubernetes.io/")
		if name == "kubernetes.io/role" {
			role, isRole = value.text(), true
		}
		if isRole && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return orNone(strings.Join(slices.Compact(roles), ","))
}

func nodeAddress(kind string) func(object) string {
	return func(o object) string {
		for _, a := range o.list("status", "addresses") {
			if a.text("type") == kind {
				return a.text("address")
			}
		}
		return "<none>"
	}
}

func kernel(o object) string {
	text := orElse("<unknown>", "status", "nodeInfo", "kernelVersion")(o)
	if arch := o.text("status", "nodeInfo", "architecture"); arch != "" {
		text += " (" + arch + ")"
	}
	return text
}

// quotas are what is used of a quota: of limits, or of the rest.
func quotas(ofLimits bool) func(object) string {
	return func(o object) string {
		var list []string
		for name, value := range o.members("status", "hard") {
			if strings.HasPrefix(name, "limits.") == ofLimits {
				list = append(list, fmt.Sprintf("%s: %s/%s", name, cmp.Or(o.text("status", "used", name), "0"), value.text()))
			}
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
}

func firstSeen(o object, now time.Time) string {
	return age(cmp.Or(o.text("firstTimestamp"), o.text("eventTime")), now)
}

func lastSeen(o object, now time.Time) string {
	stamp := o.text("lastTimestamp")
	if o.has("series") {
		stamp = o.text("series", "lastObservedTime")
	} else if stamp == "" {
		return firstSeen(o, now)
	}
	return age(stamp, now)
}

func eventCount(o object) int64 {
	if o.has("series") {
		return o.number("series", "count")
	}
	return max(o.number("count"), 1)
}

func eventSource(o object) string {
	component := cmp.Or(o.text("source", "component"), o.text("reportingComponent"))
	instance := cmp.Or(o.text("source", "host"), o.text("reportingInstance"))
	if instance == "" {
		return component
	}
	return component + ", " + instance
}

func involved(o object) string {
	kind := strings.ToLower(o.text("involvedObject", "kind"))
	if name := o.text("involvedObject", "name"); name != "" {
		return kind + "/" + name
	}
	return kind
}

// phase of a volume, or of a claim to one.
func phase(o object) string {
	if o.text("metadata", "deletionTimestamp") != "" {
		return "Terminating"
	}
	return o.text("status", "phase")
}

func claimOfVolume(o object) string {
	if !o.has("spec", "claimRef") {
		return ""
	}
	return o.text("spec", "claimRef", "namespace") + "/" + o.text("spec", "claimRef", "name")
}

// ofBound is empty for a claim that has no volume.
func ofBound(cell func(object) string) func(object) string {
	return func(o object) string {
		if o.text("spec", "volumeName") == "" {
			return ""
		}
		return cell(o)
	}
}

// accessModes are short, in the order that kubectl has.
func accessModes(path ...string) func(object) string {
	return func(o object) string {
		modes := o.texts(path...)
		var list []string
		for _, mode := range [][2]string{
			{"ReadWriteOnce", "RWO"},
			{"ReadOnlyMany", "ROX"},
			{"ReadWriteMany", "RWX"},
			{"ReadWriteOncePod", "RWOP"},
		} {
			if slices.Contains(modes, mode[0]) {
				list = append(list, mode[1])
			}
		}
		return strings.Join(list, ",")
	}
}

func attachRequired(o object) bool {
	return string(o.find("spec", "attachRequired").Raw()) != "false"
}

func tokenRequests(o object) string {
	if !o.has("spec", "tokenRequests") {
		return "<unset>"
	}
	return join(o.list("spec", "tokenRequests"), ",", "audience")
}

// subjects are those of a kind that a binding has.
func subjects(kind string) func(object) string {
	return func(o object) string {
		var list []string
		for _, s := range o.list("subjects") {
			name := s.text("name")
			if kind == "ServiceAccount" {
				name = s.text("namespace") + "/" + name
			}
			if s.text("kind") == kind {
				list = append(list, name)
			}
		}
		return strings.Join(list, ", ")
	}
}

func requestedDuration(o object) string {
	if !o.has("spec", "expirationSeconds") {
		return "<none>"
	}
	return duration.HumanDuration(time.Duration(o.number("spec", "expirationSeconds")) * time.Second)
}

// signingStatus of a request for a certificate.
func signingStatus(o object) string {
	_, denied := hasCondition(o, "Denied")
	_, approved := hasCondition(o, "Approved")
	_, failed := hasCondition(o, "Failed")
	text := "Pending"
	switch {
	case denied:
		text = "Denied"
	case approved:
		text = "Approved"
	}
	if failed {
		text += ",Failed"
	}
	if o.text("status", "certificate") != "" {
		text += ",Issued"
	}
	return text
}

func apiService(o object) string {
	if !o.has("spec", "service") {
		return "Local"
	}
	return o.text("spec", "service", "namespace") + "/" + o.text("spec", "service", "name")
}

func apiAvailable(o object) string {
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == "Available" && c.text("status") != "True" {
			return fmt.Sprintf("%s (%s)", c.text("status"), c.text("reason"))
		} else if c.text("type") == "Available" {
			return "True"
		}
	}
	return "Unknown"
}

func policyParam(o object) string {
	name, in := o.text("spec", "paramRef", "name"), o.text("spec", "paramRef", "namespace")
	switch {
	case name != "":
		return cmp.Or(in, "*") + "/" + name
	case o.has("spec", "paramRef", "selector"):
		return selectorText("spec", "paramRef", "selector")(o)
	}
	return "<unset>"
}

func isDangling(o object) string {
	status, found := hasCondition(o, "Dangling")
	if !found {
		return "?"
	}
	return status
}

func claimState(o object) string {
	isEnding := o.text("metadata", "deletionTimestamp") != ""
	var states []string
	if isEnding {
		states = append(states, "deleted")
	}
	switch {
	case !o.has("status", "allocation") && !isEnding:
		states = append(states, "pending")
	case o.has("status", "allocation"):
		states = append(states, "allocated")
		if len(o.list("status", "reservedFor")) > 0 {
			states = append(states, "reserved")
		}
	}
	return strings.Join(states, ",")
}
