package testkit

import (
	"context"
	"errors"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Leases are the Leases of an API server, as far as an election needs them: get, create, and
// updates that fail when the object has changed since it was read. Its clients share them.
type Leases struct {
	mu      sync.Mutex
	objects map[string]*coordinationv1.Lease // by namespace and name
	version int
}

// NewLeases makes a server without any.
func NewLeases() *Leases { return &Leases{objects: map[string]*coordinationv1.Lease{}} }

// Delete takes a Lease away, as a person may.
func (l *Leases) Delete(namespace, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects, namespace+"/"+name)
}

// LeaseClient is a client of Leases with a way to them of its own.
type LeaseClient struct {
	server *Leases

	mu  sync.Mutex
	cut bool
}

// Client makes one.
func (l *Leases) Client() *LeaseClient { return &LeaseClient{server: l} }

// Cut has every request of this client fail from now on, or no more.
func (c *LeaseClient) Cut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// ErrCut is the error of a client that is cut off.
var ErrCut = errors.New("no route to the API server")

func (c *LeaseClient) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return ErrCut
	}
	return nil
}

// Get implements standby.Leases.
func (c *LeaseClient) Get(_ context.Context, namespace, name string) (*coordinationv1.Lease, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[namespace+"/"+name]
	if object == nil {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return object.DeepCopy(), nil
}

// Create implements standby.Leases.
func (c *LeaseClient) Create(
	_ context.Context, object *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	return c.put(object, false)
}

// Update implements standby.Leases.
func (c *LeaseClient) Update(
	_ context.Context, object *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	return c.put(object, true)
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (c *LeaseClient) put(object *coordinationv1.Lease, exists bool) (*coordinationv1.Lease, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	key := object.Namespace + "/" + object.Name
	before := s.objects[key]
	switch {
	case exists && before == nil:
		return nil, apierrors.NewNotFound(leaseResource, object.Name)
	case exists && before.ResourceVersion != object.ResourceVersion:
		return nil, apierrors.NewConflict(leaseResource, object.Name,
			errors.New("the object has been modified"))
	case !exists && before != nil:
		return nil, apierrors.NewAlreadyExists(leaseResource, object.Name)
	}
	s.version++
	after := object.DeepCopy()
	after.ResourceVersion = strconv.Itoa(s.version)
	s.objects[key] = after
	return after.DeepCopy(), nil
}
