package resource

// Rewrite gives the JSON without what the rules take out.
func (r *Rules) Rewrite(raw []byte) ([]byte, error) { return r.rewrite(raw) }
