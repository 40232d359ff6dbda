// Package audit finds the authenticated user of a change in the API server's audit log.
//
// A change event names no user, and an audit event names no version: what joins them is an
// admission policy (Policy) that notes in the audit event which version of the object a request
// has seen. An answer is right, or absent with a reason.
package audit
