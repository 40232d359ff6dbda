// Package faults stands between a bridge and an API server and does what networks, proxies and busy
// servers do.
//
// A Wire passes TCP on, TLS untouched: it cuts connections after some bytes, lets them go silent,
// and refuses new ones. A Front ends TLS with a certificate of its own: it answers some requests
// itself, and changes the answers to others.
package faults
