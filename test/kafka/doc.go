// Package kafkatest runs Apache Kafka (KRaft) for tests: one broker, or several that are
// controllers too. The jars come from Maven Central (make test-kafka fetches them, as pom.xml
// says); KAFKA_LIB names the directory that they lie in. A broker is a JVM with a small heap, in a
// process group of its own; the kernel kills it when the test ends in whatever way.
//
// Its tests show what only the real thing can: that it takes the record batches that we encode,
// keeps order and completeness while brokers are killed, speaks TLS and SASL with us, and that
// readers of other make understand what we have written.
package kafkatest
