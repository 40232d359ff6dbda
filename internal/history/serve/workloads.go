package serve

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// isSidecar reports whether an init container runs as long as its pod.
func isSidecar(pod object, name string) bool {
	return slices.ContainsFunc(pod.list("spec", "initContainers"), func(c object) bool {
		return c.text("name") == name && c.text("restartPolicy") == "Always"
	})
}

func podReady(o object) string {
	ready, all := 0, len(o.list("spec", "containers"))
	for _, c := range o.list("spec", "initContainers") {
		if c.text("restartPolicy") == "Always" {
			all++
		}
	}
	for _, c := range o.list("status", "initContainerStatuses") {
		if isSidecar(o, c.text("name")) && c.isTrue("started") && c.isTrue("ready") {
			ready++
		}
	}
	if initStatus(o) == "" {
		for _, c := range o.list("status", "containerStatuses") {
			if c.isTrue("ready") && c.has("state", "running") {
				ready++
			}
		}
	}
	return fmt.Sprintf("%d/%d", ready, all)
}

// podRestarts counts restarts of what is shown: of all init containers while they run, else of
// containers and those that run beside them.
func podRestarts(o object, now time.Time) string {
	isStarting := initStatus(o) != ""
	var n int64
	var last string // RFC 3339: the order of texts is that of times
	count := func(c object) {
		n += c.number("restartCount")
		last = max(last, c.text("lastState", "terminated", "finishedAt"))
	}
	for _, c := range o.list("status", "initContainerStatuses") {
		if isStarting || isSidecar(o, c.text("name")) {
			count(c)
		}
	}
	if !isStarting {
		for _, c := range o.list("status", "containerStatuses") {
			count(c)
		}
	}
	if n == 0 || last == "" {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d (%s ago)", n, age(last, now))
}

// initStatus is what a pod does before its containers start, "" when they may have started.
func initStatus(o object) string {
	if status, _ := hasCondition(o, "Initialized"); status == "True" {
		return ""
	}
	for i, c := range o.list("status", "initContainerStatuses") {
		why := c.text("state", "waiting", "reason")
		switch {
		case c.text("state", "terminated", "exitCode") == "0",
			isSidecar(o, c.text("name")) && c.isTrue("started"):
			continue
		case c.has("state", "terminated"):
			return "Init:" + ending(c)
		case why != "" && why != "PodInitializing":
			return "Init:" + why
		}
		return fmt.Sprintf("Init:%d/%d", i, len(o.list("spec", "initContainers")))
	}
	return ""
}

// ending is why a container has ended.
func ending(c object) string {
	end := func(name string) string { return c.text("state", "terminated", name) }
	switch {
	case end("reason") != "":
		return end("reason")
	case end("signal") != "" && end("signal") != "0":
		return "Signal:" + end("signal")
	}
	return "ExitCode:" + cmp.Or(end("exitCode"), "0")
}

// podStatus returns what kubectl shows: why a container does not run, else the phase.
func podStatus(o object) string {
	phase := o.text("status", "phase")
	if o.text("metadata", "deletionTimestamp") != "" {
		switch {
		case o.text("status", "reason") == "NodeLost":
			return "Unknown"
		case phase != "Succeeded" && phase != "Failed":
			return "Terminating"
		}
	}
	reason := cmp.Or(o.text("status", "reason"), phase)
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == "PodScheduled" && c.text("reason") == "SchedulingGated" {
			reason = "SchedulingGated"
		}
	}
	return cmp.Or(initStatus(o), containersStatus(o, reason))
}

// containersStatus is why a container does not run, else the reason of the pod.
func containersStatus(o object, reason string) string {
	isRunning, failure := false, ""
	for _, c := range slices.Backward(o.list("status", "containerStatuses")) {
		switch {
		case c.text("state", "waiting", "reason") != "":
			reason = c.text("state", "waiting", "reason")
		case c.has("state", "terminated"):
			if reason = ending(c); c.number("state", "terminated", "exitCode") != 0 {
				failure = reason
			}
		case c.isTrue("ready") && c.has("state", "running"):
			isRunning = true
		}
	}
	ready, _ := hasCondition(o, "Ready")
	switch {
	case reason != "Completed":
	case isRunning && ready == "True":
		return "Running"
	case failure != "":
		return failure
	case isRunning:
		return "NotReady"
	}
	return reason
}

func readinessGates(o object) string {
	gates, ready := o.list("spec", "readinessGates"), 0
	for _, g := range gates {
		if status, _ := hasCondition(o, g.text("conditionType")); status == "True" {
			ready++
		}
	}
	if len(gates) == 0 {
		return "<none>"
	}
	return fmt.Sprintf("%d/%d", ready, len(gates))
}

func controller(o object) string {
	for _, owner := range o.list("metadata", "ownerReferences") {
		if owner.isTrue("controller") {
			group, _, hasGroup := strings.Cut(owner.text("apiVersion"), "/")
			name := strings.ToLower(owner.text("kind"))
			if hasGroup {
				name += "." + group
			}
			return name + "/" + owner.text("name")
		}
	}
	return "<none>"
}

func jobStatus(o object) string {
	for _, kind := range []string{
		"Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet",
	} {
		status, _ := hasCondition(o, kind)
		isEnding := kind == "Terminating" && o.text("metadata", "deletionTimestamp") != ""
		if status == "True" || isEnding {
			return kind
		}
	}
	return "Running"
}

func completions(o object) string {
	wanted := o.text("spec", "completions")
	if parallel := o.number("spec", "parallelism"); wanted == "" && parallel > 1 {
		wanted = fmt.Sprintf("1 of %d", parallel)
	}
	return fmt.Sprintf("%d/%s", o.number("status", "succeeded"), cmp.Or(wanted, "1"))
}

func jobDuration(o object, now time.Time) string {
	began, err := time.Parse(time.RFC3339, o.text("status", "startTime"))
	if err != nil {
		return ""
	}
	if ended, err := time.Parse(time.RFC3339, o.text("status", "completionTime")); err == nil {
		now = ended
	}
	return duration.HumanDuration(now.Sub(began))
}

// scalingTargets are the metrics of an autoscaler, each with its value and what it should be.
func scalingTargets(o object) string {
	var list []string
	current := o.list("status", "currentMetrics")
	for i, m := range o.list("spec", "metrics") {
		member := m.text("type") // ContainerResource: the member begins with a lower-case letter
		if member != "" {
			member = strings.ToLower(member[:1]) + member[1:]
		}
		var is object
		if i < len(current) {
			is = current[i]
		}
		value := func(o object, of, name string) string { return o.text(member, of, name) }
		isResource := member == "resource" || member == "containerResource"
		target, is2, mark := value(m, "target", "averageValue"), value(is, "current", "averageValue"), ""
		switch {
		case target != "" && (member == "external" || member == "object"):
			mark = " (avg)"
		case target == "" && isResource:
			target, is2 = value(m, "target", "averageUtilization"), value(is, "current", "averageUtilization")
			target, is2 = percent(target, "<auto>"), percent(is2, "")
		case target == "":
			target, is2 = value(m, "target", "value"), value(is, "current", "value")
		}
		shown := cmp.Or(is2, "<unknown>") + "/" + target + mark
		if isResource {
			shown = m.text(member, "name") + ": " + shown
		}
		list = append(list, shown)
	}
	return first(2, list, ", ", "<none>")
}

func percent(number, none string) string {
	if number == "" {
		return none
	}
	return number + "%"
}
