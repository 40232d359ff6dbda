package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tail follows the files of a pattern: one that grows, and those that were rotated. A file is known
// by how it begins, so one that was renamed, copied or compressed is not read again. The inode
// would be another one then, or that of another file.
type tail struct {
	*source
	files   []*tailed
	stored  time.Time // when the state was stored last
	isFirst bool      // no poll of this run has ended
}

// file is how far a file is read.
type file struct {
	Head string `json:"head"` // hash of its beginning
	Next int64  `json:"next"` // in bytes, of what is in a compressed file
	// Final: another file is the newer one, and this one was read to its end.
	Final bool `json:"final,omitempty"`
}

// tailed is a file that is open: one that is renamed or removed is read to its end.
type tailed struct {
	file
	path string
	open *os.File
	info fs.FileInfo
	// isThere: the last poll has found it. isRead: nothing was added since it was read.
	isThere, isRead bool
}

const (
	// pollEvery is how often is looked for what was added, and storeEvery how often is stored that
	// there was nothing.
	pollEvery  = 500 * time.Millisecond
	storeEvery = 5 * time.Second
	// headSize of a file is more than it needs to have the id of its first event.
	headSize = 512
)

// follow reads the files until ctx ends.
func (t *tail) follow(ctx context.Context) error {
	t.files, t.isFirst = nil, true
	defer func() {
		for _, f := range t.files {
			_ = f.open.Close() // it was read only
		}
	}()
	for {
		if err := t.poll(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.pause(pollEvery)):
		}
	}
}

// poll reads what was added to the files.
func (t *tail) poll(ctx context.Context) error {
	began := time.Now()
	if err := t.find(began); err != nil {
		return err
	}
	b := batch{since: t.state.Until}
	for _, f := range t.files {
		if err := t.read(ctx, f, &b); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	t.close()
	if len(t.files) > 0 {
		t.state.Until = began.Add(-skew)
	}
	if len(b.requests) == 0 && began.Sub(t.stored) < t.pause(storeEvery) {
		return nil
	}
	t.stored = began
	return t.storeRead(ctx, &b)
}

// storeRead stores a batch with the positions.
func (t *tail) storeRead(ctx context.Context, b *batch) error {
	if t.state.Since.IsZero() {
		t.state.Since = b.first // the oldest file is read first
	}
	t.state.Files = t.state.Files[:0]
	for _, f := range t.files {
		t.state.Files = append(t.state.Files, f.file)
	}
	return t.store(ctx, b)
}

// find opens the files that are new, and notices those that were truncated or are gone.
func (t *tail) find(now time.Time) error {
	paths, err := filepath.Glob(t.name)
	if err != nil {
		return err
	}
	for _, f := range t.files {
		f.isThere = false
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was renamed
		}
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(t.files, func(f *tailed) bool { return os.SameFile(f.info, info) }); i >= 0 {
			err = t.look(t.files[i], path, info, now)
		} else {
			err = t.tryOpen(path, info)
		}
		if err != nil {
			return err
		}
	}
	slices.SortStableFunc(t.files, func(a, b *tailed) int { return a.info.ModTime().Compare(b.info.ModTime()) })
	if t.isFirst && len(t.files) > 0 {
		t.isFirst = false
		t.missFiles(now)
	}
	return nil
}

// look notices what happened to a file since the last poll.
func (t *tail) look(f *tailed, path string, info fs.FileInfo, now time.Time) error {
	f.isThere, f.path = true, path
	if info.Size() == f.info.Size() && info.ModTime().Equal(f.info.ModTime()) {
		return nil
	}
	f.info, f.isRead, f.Final = info, false, false
	head, err := headOf(f.open, path)
	if err != nil || head == f.Head && (isCompressed(path) || info.Size() >= f.Next) {
		return err
	}
	t.lose(t.state.Until, now, "its file was truncated")
	f.file = file{Head: head}
	return nil
}

// tryOpen opens a file, unless its beginning is not there yet.
func (t *tail) tryOpen(path string, info fs.FileInfo) error {
	open, err := os.Open(path)
	if err != nil {
		return err
	}
	head, err := headOf(open, path)
	known, isCopy := t.known(head)
	if err != nil || head == "" || isCopy {
		return errors.Join(err, open.Close())
	}
	t.files = append(t.files, &tailed{file: known, path: path, open: open, info: info, isThere: true})
	return nil
}

// known returns how far the file with a beginning was read, perhaps under another name. isCopy: it
// is there under another name too.
func (t *tail) known(head string) (f file, isCopy bool) {
	for _, f := range t.files {
		if f.Head == head {
			return f.file, f.isThere
		}
	}
	for _, f := range t.state.Files {
		if f.Head == head {
			return f, false
		}
	}
	return file{Head: head}, false
}

// missFiles says what was removed while it was not followed.
func (t *tail) missFiles(now time.Time) {
	for _, known := range t.state.Files {
		isThere := slices.ContainsFunc(t.files, func(f *tailed) bool { return f.Head == known.Head })
		if !known.Final && !isThere {
			t.lose(t.state.Until, now, "a file was removed before it was read to its end")
			return
		}
	}
}

// close closes the files that are gone, and says of which one nothing more comes.
func (t *tail) close() {
	newest := -1
	for i, f := range t.files {
		if !isCompressed(f.path) {
			newest = i
		}
	}
	for i, f := range t.files {
		f.Final = f.isRead && (i < newest || isCompressed(f.path))
		if !f.isThere {
			_ = f.open.Close() // it was read only
		}
	}
	t.files = slices.DeleteFunc(t.files, func(f *tailed) bool { return !f.isThere })
}

// read adds what a file has behind its position.
func (t *tail) read(ctx context.Context, f *tailed, b *batch) error {
	if f.isRead && f.isThere {
		return nil
	}
	if _, err := f.open.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var in io.Reader = f.open
	var err error
	if isCompressed(f.path) {
		if in, err = gzip.NewReader(f.open); err == nil {
			_, err = io.CopyN(io.Discard, in, f.Next)
		}
	} else {
		_, err = f.open.Seek(f.Next, io.SeekStart)
	}
	lines := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	for err == nil {
		var size int64
		if line, size, err = readLine(lines, line[:0]); err != nil {
			break // a line without an end is not there yet
		}
		f.Next += size
		if len(bytes.TrimSpace(line)) > 0 {
			err = t.add(b, line, place{f.path, f.Next - size})
		}
		if err == nil && b.isFull() {
			err = t.storeRead(ctx, b)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && isCompressed(f.path) {
		f.isRead = true
		return nil
	}
	return err
}

// readLine appends a line with its end, and returns its size. Of one that is too long for an event
// it appends the beginning.
func readLine(in *bufio.Reader, to []byte) (line []byte, size int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if size += int64(len(part)); len(to) < maxLine {
			to = append(to, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return to, size, err
		}
	}
}

// headOf returns what a file is known by; "" while too little of it is there.
func headOf(open *os.File, path string) (string, error) {
	var in io.Reader = io.NewSectionReader(open, 0, 1<<40)
	if isCompressed(path) {
		unpacked, err := gzip.NewReader(in)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		in = unpacked
	}
	begin := make([]byte, headSize)
	n, err := io.ReadFull(in, begin)
	begin = begin[:n]
	if i := bytes.IndexByte(begin, '\n'); i >= 0 {
		begin = begin[:i]
	} else if n < headSize {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return "", err
	}
	sum := sha256.Sum256(begin)
	return hex.EncodeToString(sum[:16]), nil
}

func isCompressed(path string) bool { return strings.HasSuffix(path, ".gz") }
