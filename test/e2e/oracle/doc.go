// Package oracle reads etcd itself, beside the API server, and keeps every revision of every key.
// What a history answers is compared with it. It shares no code with the bridge and asks no API
// server.
//
// It takes in the address of an etcd and hands out revisions, in the order in which etcd made them,
// and the Kubernetes object of each. A watch that etcd ends fails the oracle permanently, since a
// record with a hole proves nothing. Where etcd is restored from a backup, its revisions come a
// second time: Restored begins another era.
package oracle
