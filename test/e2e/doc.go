// Package e2e holds the end-to-end tests: the built bridge beside a real Kubernetes control plane
// (../kubernetes) and real sinks, seen from outside only.
//
//	make test-integration                            # builds what is needed, with -race
//	cd test/e2e && go test -run TestAPIServer -v .   # one test; builds what is missing
//	go test -artifacts ./...                         # keeps the logs of bridges whose test failed
//	BRIDGE_BIN=… CONTROLPLANE_BIN=… go test .        # programs that are built already
//
// Its packages:
//
//   - harness: control planes and bridges: start, end, control API, readiness, logs
//   - truth: an independent witness, a watch that keeps each byte
//   - oracle: every revision of every key, read from etcd itself: TestProof compares a history
//     with it
//   - read: an independent reader of JetStream and Kafka, by the CloudEvents SDK
//   - faults: proxies before the API server that cut, go silent, or answer themselves
//   - check: compares the two: complete, once, in order, byte for byte
//   - crash, soak: findings and reasons for repeats; samples over time
//
// A test takes a namespace and a service account for itself (newLab), has a witness watch it,
// starts a bridge, changes things, and waits until the stream is what the witness saw
// (l.complete). The comparison after a stop finds what comes too much. Where versions are lost to
// everybody (a killed API server, a restored etcd) only the final state and the order of each
// object are compared. check/expected.go has the expected attributes a second time: it must not
// share an error with the bridge. Tests that spoil a control plane have one of their own; the
// others share four.
//
// TestCrash has a JetStream that drops repeats, a Kafka that keeps them, and an API server that is
// killed. In TestCrashWithoutDedup JetStream keeps repeats and the API server forgets nothing.
// Kills come at random moments and at aimed ones: in a start, in a relist, while the WAL is
// written. Each repeat needs a reason, and evidence for it:
//
//   - It was acknowledged and not committed: no sink was cut off in that life, and it was stored
//     at most 2 s before the last write to the WAL, and 4 s before the kill.
//   - Another sink did not have it yet: that one was cut off in the same life, or has it from a
//     later one, and it was sent at most 10 s before the kill.
//   - The answer was lost: this sink was cut off within 2 s after it had stored it.
//
// TestAbuse has a hostile tenant who writes what the API server takes. What the bridge adds to
// another tenant's latency may double on top of 5 ms. The measure is the bridge in quiet, or a
// plain program beside it under abuse. Only make test-abuse judges latency: other work on the
// machine spoils it.
package e2e
