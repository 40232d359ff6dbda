package bridge

// Reason is why the bridge is not ready.
type Reason struct {
	// Component is "informer <name>/<resource>", "sink <name>", "namespaces" or "state".
	Component string `json:"component"`
	Message   string `json:"message"`
}

func (r Reason) String() string { return r.Component + ": " + r.Message }
