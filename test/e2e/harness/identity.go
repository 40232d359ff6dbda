package harness

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Identity is a service account that a bridge uses, so that its requests can be distinguished from
// those of others.
type Identity struct {
	User  string // as /requests has it
	Token string
	Role  string // name of its ClusterRole
}

// ReadEverything are the rights that a bridge needs to watch whatever there is, and no more.
func ReadEverything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"list", "watch"}},
		ReadClusterID(),
	}
}

// ReadClusterID is the right to read which cluster it is.
func ReadClusterID() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}}
}

// NewIdentity makes a service account with the given rights in the whole cluster.
func (c *ControlPlane) NewIdentity(ctx context.Context, namespace, name string, rules ...rbacv1.PolicyRule) (*Identity, error) {
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return nil, err
	}
	unique := metav1.ObjectMeta{Name: "e2e-" + namespace + "-" + name}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: unique, Rules: rules}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: unique,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: unique.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(24 * 60 * 60)), // by default it is an hour: less than long forms take
	}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, ask, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	user := fmt.Sprintf("system:serviceaccount:%s:%s", namespace, name)
	return &Identity{User: user, Token: answer.Status.Token, Role: unique.Name}, nil
}
