// Package http is the sink that posts events to an endpoint, as the HTTP protocol binding of
// CloudEvents says, in binary or structured mode, or as flat records.
//
// It takes events from a publisher, one for each call of Publish. As many calls run at once as
// Config.Concurrency says, beside those that hang (slots.go). The unit of order is the object
// (sinks.ByObject): an event is posted when the one before it of its object has an answer that
// settles it.
//
// # Answers
//
//	2xx                          settled
//	401, 403, 404, 405, 407,     posted again, and only the object waits: they are about the
//	408, 410, 425, 429           endpoint, its credentials or its load, and not about the event
//	413                          refused: the publisher tries smaller forms, then as other 4xx
//	other 4xx                    refused: the event goes to the dead letters
//	3xx, 5xx, none in time       posted again, and only the object waits
//	no connection                posted again; the sink pauses until there is one
//
// Retry-After of 429 and 503 is obeyed, for the whole endpoint and at most five minutes. A redirect
// is followed within the host of the URL and when it keeps the method (307, 308). Answers are read
// to 64 KiB and thrown away: what an endpoint says reaches neither the log nor the dead letters.
//
// With Config.Batch a request holds events of several objects (batch.go). One that is not settled
// as a whole is followed by a request for each of its events.
//
// # Repeats
//
// Nothing can be read back, and no broker drops repeats. An event whose answer was lost comes
// again, with the same id: receivers drop repeats by id, or by sequence. The first attempt may be
// worked on while the second is: a receiver that answers late may see a repeat behind later events
// of the object, and never an event for the first time.
package http
