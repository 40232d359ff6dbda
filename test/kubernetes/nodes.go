package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// createNodes makes the Node objects which kwok then brings to life. Nodes of an earlier run are
// kept.
func createNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	for i := range count {
		name := fmt.Sprintf("node-%d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
				"type":                 "kwok",
			},
		}}
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	return nil
}

// deleteNodeLeases makes a restarted kwok take over the nodes at once. Each run of kwok is a new
// holder to the leases, and would wait for those of the run before to expire, 40 s in which no pod
// becomes ready.
func deleteNodeLeases(ctx context.Context, client kubernetes.Interface) error {
	err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("delete node leases: %w", err)
	}
	return nil
}

// checkNodes returns nil once a pod that is created now would be scheduled at once: the nodes are
// ready and their taints gone (controller manager, kwok), and the namespace has its service account
// (controller manager).
func checkNodes(ctx context.Context, client kubernetes.Interface, nodes int) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, node := range list.Items {
		if nodeReady(&node) {
			ready++
		}
	}
	if ready < nodes {
		return fmt.Errorf("%d of %d nodes are ready", ready, nodes)
	}
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

func nodeReady(node *corev1.Node) bool {
	if len(node.Spec.Taints) > 0 {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
