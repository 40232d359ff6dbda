package bridge

// Scope is what a unit's state is kept for, so that a test can read the state without changing it.
func (c *UnitConfig) Scope() string { return c.scope() }
