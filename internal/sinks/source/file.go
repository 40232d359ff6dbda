package source

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/event"
)

// Input is what "-" reads.
type Input = io.Reader

// fileReader reads JSON documents from a file, one behind the other or in an array.
type fileReader struct {
	path    string
	file    *os.File // nil for standard input
	size    int64    // 0 where it is not known
	counted *countingReader
	in      *jsontext.Decoder
	skip    uint64 // documents that a reader before has read
	read    uint64
}

// countingReader counts what is read of the file itself, for the progress.
type countingReader struct {
	io.Reader
	n int64
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n += int64(n)
	return n, err
}

// openFile opens a file, also one that gzip has compressed.
func openFile(cfg Config, path string) (Reader, error) {
	r := &fileReader{
		path: path, counted: &countingReader{Reader: cfg.Stdin},
		skip: cfg.After[path].Next,
	}
	if path == "-" {
		r.path = "standard input"
		if cfg.Stdin == nil {
			return nil, errors.New("there is no standard input")
		}
	} else {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			r.size = info.Size()
		}
		r.file, r.counted.Reader = file, file
	}
	buffered := bufio.NewReaderSize(r.counted, 256<<10)
	in := io.Reader(buffered)
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("%s: %w", r.path, err)
		}
		in = unzipped
	}
	r.in = jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true))
	return r, nil
}

func (r *fileReader) Close() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
	}
}

func (r *fileReader) Whole() bool { return true }

func (r *fileReader) Removed() []Removal { return nil }

func (r *fileReader) Position() Position { return Position{r.path: {Next: r.read}} }

func (r *fileReader) Progress() Progress {
	return Progress{uint64(r.counted.n), uint64(r.size)}
}

func (r *fileReader) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		m := new(Message)
		for ctx.Err() == nil {
			document, err := r.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			r.read++
			if r.read <= r.skip {
				continue
			}
			*m = Message{Lane: r.path, Offset: r.read}
			if m.Event, err = event.ParseStructured(document); err != nil {
				m.Other = "JSON that is no CloudEvent"
			}
			if !yield(m, nil) {
				return
			}
		}
		yield(nil, context.Cause(ctx))
	}
}

// next is the next document. An array at the top is a batch.
func (r *fileReader) next() ([]byte, error) {
	for r.atBracket() {
		if _, err := r.in.ReadToken(); err != nil {
			return nil, r.wrong(err)
		}
	}
	value, err := r.in.ReadValue()
	if err != nil {
		return nil, r.wrong(err)
	}
	return value, nil
}

// atBracket reports whether a batch begins or ends. An array in a batch is a document.
func (r *fileReader) atBracket() bool {
	kind := r.in.PeekKind()
	return kind == ']' || kind == '[' && r.in.StackDepth() == 0
}

// wrong says where the file can't be read on. io.EOF is its end.
func (r *fileReader) wrong(err error) error {
	switch {
	case err == io.EOF && r.in.StackDepth() == 0: //nolint:errorlint // a wrapped one is in the midst
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%s ends in the midst of a document, behind %d that are whole: it is truncated",
			r.path, r.read)
	}
	return fmt.Errorf("%s: behind %d documents: %w", r.path, r.read, err)
}
