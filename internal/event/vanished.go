package event

import "strings"

// Vanished is what a sink holds of an object that does not exist, as far as it knows.
type Vanished struct {
	Namespace, Name               string
	UID, Subject, ResourceVersion string // "" where that is not known
}

// Deleted is the event of an object that vanished before a list, whose end is the event end. The
// same list makes the same event. Its id lacks nothing but what only the informer could know: where
// the uid is not known, the object's key stands for it.
func (v Vanished) Deleted(end *Event) *Event {
	key := end.PartitionKey + "/" + v.Namespace + "/" + v.Name
	if v.UID == "" {
		v.UID = key
	}
	if v.Subject == "" {
		v.Subject = end.Subject + "/" + v.Name
	}
	_, era, _ := strings.Cut(end.ID, "/synced/"+end.ResourceVersion)
	if at := strings.Index(era, "/partition/"); at >= 0 {
		era = era[:at]
	}
	return &Event{
		ID: v.UID + "/deleted" + era, Source: end.Source, Type: "dev.kubebridge.resource.deleted",
		Subject: v.Subject, Time: end.Time, PartitionKey: key, Sequence: end.Sequence + ".deleted",
		ObjectAttributes: ObjectAttributes{
			APIVersion: end.APIVersion, Kind: end.Kind, Resource: end.Resource,
			Namespace: v.Namespace, Name: v.Name, UID: v.UID, ResourceVersion: v.ResourceVersion,
		},
		OriginAttributes: OriginAttributes{TimeSource: TimeObserved, Inferred: true},
		Informer:         end.Informer, Op: Deleted, Observed: end.Observed,
		Routing: Routing{Cluster: end.Cluster, Group: end.Group, Version: end.Version},
	}
}
