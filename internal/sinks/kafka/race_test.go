//go:build race

package kafka_test

const raceFactor = 1 // as a power of two
