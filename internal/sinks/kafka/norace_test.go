//go:build !race

package kafka_test

const raceFactor = 0
