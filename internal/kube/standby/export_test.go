package standby

// Decode reads the text on the Lease.
var Decode = decode

// Encode writes it.
func Encode(p *Progress, most int) (string, error) {
	text, _, err := p.encode(most)
	return text, err
}
