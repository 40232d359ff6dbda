package event

// Plain is what Decode reads without the SDK.
func (m *Message) Plain() (Event, bool) { return m.plain() }
