package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"

	"github.com/kubebridge/bridge/internal/event"
)

// kafka-go's decoder believes every length in an answer and allocates as much at once, and may loop
// over a count for hours. So the sink decodes answers itself, into kafka-go's types.

// errMalformed is an answer that breaks the protocol, or does not answer the request.
var errMalformed = errors.New("malformed answer")

// answers makes the answer of each kind of request that the sink sends.
var answers = map[protocol.ApiKey]func() protocol.Message{
	protocol.ApiVersions:      func() protocol.Message { return new(apiversions.Response) },
	protocol.SaslHandshake:    func() protocol.Message { return new(saslhandshake.Response) },
	protocol.SaslAuthenticate: func() protocol.Message { return new(saslauthenticate.Response) },
	protocol.Metadata:         func() protocol.Message { return new(metadata.Response) },
	protocol.InitProducerId:   func() protocol.Message { return new(initproducerid.Response) },
	protocol.Produce:          func() protocol.Message { return new(produce.Response) },
	protocol.ListOffsets:      func() protocol.Message { return new(listoffsets.Response) },
	protocol.Fetch:            func() protocol.Message { return new(fetchAnswer) },
	protocol.DescribeConfigs:  func() protocol.Message { return new(describeconfigs.Response) },
	protocol.CreateTopics:     func() protocol.Message { return new(createtopics.Response) },
}

// maxListMemory bounds what all lists of one answer take in memory. A topic with 100,000
// partitions takes about 10 MB.
const maxListMemory = 16 << 20

// decodeAnswer decodes the body of an answer, without its size and number. The answer may keep
// data.
func decodeAnswer(data []byte, version int16, answer protocol.Message) (err error) {
	defer recoverMalformed(&err)
	d := &decoder{data: data, version: version, memory: maxListMemory}
	d.answer(answer)
	return d.err
}

// recoverMalformed makes a panic of a decoder an error: what the broker has sent caused it.
func recoverMalformed(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %w", errMalformed, event.NewPanicError(p))
	}
}

// decoder reads the parts of an answer. After the first error everything it reads is zero.
type decoder struct {
	data     []byte // not read yet
	version  int16
	flexible bool // compact lengths, and tags behind each struct
	memory   int  // what lists may still take
	err      error
}

// answer reads all of it.
func (d *decoder) answer(into protocol.Message) {
	if own, ok := into.(*fetchAnswer); ok {
		own.decode(d)
		return
	}
	v := reflect.ValueOf(into).Elem()
	if d.flexible = isFlexible(v.Type(), d.version); d.flexible {
		d.skipTags() // of the answer's header
	}
	d.value(v)
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{errMalformed}, args...)...)
	}
	d.data = nil
}

// next returns the next n bytes.
func (d *decoder) next(n int) []byte {
	if n < 0 || n > len(d.data) {
		d.fail("it ends before %d bytes that it announces", n)
		return nil
	}
	taken := d.data[:n]
	d.data = d.data[n:]
	return taken
}

// number reads a signed number of 1, 2, 4 or 8 bytes.
func (d *decoder) number(size int) (n int64) {
	for _, b := range d.next(size) {
		n = n<<8 | int64(b)
	}
	unused := 64 - 8*size
	return n << unused >> unused
}

// length reads the length of a text, of bytes or of a list; size is its size where the answer is
// not flexible. It is 0 for null.
func (d *decoder) length(size int) int {
	if !d.flexible {
		n := d.number(size)
		if n < -1 {
			d.fail("a length is %d", n)
		}
		return max(int(n), 0)
	}
	n := d.unsigned()
	if n > math.MaxInt32 {
		d.fail("a length is %d", n)
		return 0
	}
	return max(int(n)-1, 0)
}

// unsigned reads a number of variable size.
func (d *decoder) unsigned() uint64 {
	n, size := binary.Uvarint(d.data)
	if size <= 0 {
		d.fail("it ends in a number")
		return 0
	}
	d.next(size)
	return n
}

// skipTags skips tagged fields: the sink needs none.
func (d *decoder) skipTags() {
	for n := d.unsigned(); n > 0 && d.err == nil; n-- {
		d.unsigned() // the tag
		if size := d.unsigned(); size <= math.MaxInt32 {
			d.next(int(size))
		} else {
			d.fail("a tagged field has %d bytes", size)
		}
	}
}

// value reads a field of any type that kafka-go's answers have.
func (d *decoder) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.number(1) != 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(d.number(int(v.Type().Size())))
	case reflect.String:
		v.SetString(string(d.next(d.length(2))))
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(d.next(d.length(4)))
		} else {
			d.list(v)
		}
	case reflect.Struct:
		for _, i := range fieldsOf(v.Type(), d.version) {
			d.value(v.Field(i))
		}
		if d.flexible {
			d.skipTags()
		}
	default:
		d.fail("fields of type %v are not supported", v.Type())
	}
}

// list reads a list. Each element takes at least a byte of the answer.
func (d *decoder) list(v reflect.Value) {
	n := d.length(4)
	size := n * int(v.Type().Elem().Size())
	if n > len(d.data) || size > d.memory {
		d.fail("a list has %d elements", n)
		return
	}
	d.memory -= size
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := 0; i < n && d.err == nil; i++ {
		d.value(v.Index(i))
	}
}

// typeVersion is a type of an answer in one version of the protocol. The type is not embedded: with
// its MethodByName the linker would keep every exported method in the binary.
type typeVersion struct {
	of      reflect.Type
	version int16
}

var fields sync.Map // typeVersion to []int

// fieldsOf are the indices of the fields that a struct has in a version, by kafka-go's tags.
func fieldsOf(t reflect.Type, version int16) []int {
	if known, ok := fields.Load(typeVersion{t, version}); ok {
		return known.([]int)
	}
	var found []int
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != "_" && hasVersion(f, version) {
			found = append(found, i)
		}
	}
	fields.Store(typeVersion{t, version}, found)
	return found
}

// isFlexible reports whether a version is flexible (KIP-482). kafka-go marks that by a field "_".
func isFlexible(t reflect.Type, version int16) bool {
	mark, ok := t.FieldByName("_")
	return ok && hasVersion(mark, version)
}

// hasVersion reports whether a field is part of a version, by a tag as "min=v1,max=v5,nullable".
func hasVersion(f reflect.StructField, version int16) bool {
	for tag := range strings.SplitSeq(f.Tag.Get("kafka"), "|") {
		least, most := math.MaxInt, -1
		for part := range strings.SplitSeq(tag, ",") {
			if text, ok := strings.CutPrefix(part, "min=v"); ok {
				least, _ = strconv.Atoi(text)
			} else if text, ok := strings.CutPrefix(part, "max=v"); ok {
				most, _ = strconv.Atoi(text)
			}
		}
		if least <= int(version) && int(version) <= most {
			return true
		}
	}
	return false
}
