package disk

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// SumsFile has how far the journals of a database are on disk, with a checksum of each, and which
// marker names its list of files. Pebble takes a journal that can't be read to its end for one that
// a crash has cut, and continues without the rest: after one flipped bit a log or a MANIFEST loses
// everything behind that bit. So what was synced is recorded here, and compared before Pebble opens
// anything.
//
// A record is written after its journal was synced, and is not synced itself: an older record is a
// weaker check, and not a wrong one. Only before a journal is removed its record is removed, with a
// sync: else a power cut could leave the record of a journal that is rightly gone.
const SumsFile = "journals.sum"

// ErrDamaged reports that a file of a database is not as it was written.
var ErrDamaged = errors.New("not as it was written")

// castagnoli is computed by the CPU, at gigabytes a second.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is one record of SumsFile: of a journal, or of the marker.
type sum struct {
	name   string
	length int64
	sum    uint32
}

// sumBytes is the length of a record, so that one replaces another.
const sumBytes = 96

// encode returns the record as it is stored; the zero sum is a free place.
func (s sum) encode() []byte {
	text := fmt.Sprintf("%-60s %016d %08x", s.name, s.length, s.sum)
	return fmt.Appendf(nil, "%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// decodeSum returns the zero sum for what it does not understand, and for a free place. A crash may
// have cut a record.
func decodeSum(b []byte) (s sum) {
	if _, err := fmt.Sscanf(string(b), "%s %d %x", &s.name, &s.length, &s.sum); err != nil ||
		!bytes.Equal(s.encode(), b) {
		return sum{}
	}
	return s
}

// sums writes SumsFile.
type sums struct {
	files vfs.FS
	dir   string

	mu      sync.Mutex
	file    vfs.File // guarded by mu; nil until something is recorded
	failed  bool     // guarded by mu: nothing is recorded any more
	records []sum    // guarded by mu: as they lie in the file
	marker  string   // guarded by mu: that was created, and is not known to be on disk
}

// isMarker reports whether a file names the MANIFEST that counts.
func isMarker(base string) bool { return strings.HasPrefix(base, "marker.manifest.") }

// set records how far a journal is on disk. With a marker, it replaces the one before.
func (s *sums) set(record sum) {
	if record.name == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place := slices.IndexFunc(s.records, func(r sum) bool {
		return r.name == record.name || isMarker(r.name) && isMarker(record.name)
	})
	if place < 0 {
		place = slices.IndexFunc(s.records, func(r sum) bool { return r.name == "" })
	}
	if place < 0 {
		place = len(s.records)
		s.records = append(s.records, sum{})
	}
	s.records[place] = record
	_ = s.writeLocked(place, false) // without it, one check less at the next start
}

// remove removes the record of a journal that is about to be removed.
func (s *sums) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := slices.IndexFunc(s.records, func(r sum) bool { return r.name == name })
	if place < 0 || name == "" {
		return
	}
	s.records[place] = sum{}
	if err := s.writeLocked(place, true); err != nil {
		// A record that stays would make the journal's absence look like damage.
		s.failed = true
		_ = s.files.Remove(s.files.PathJoin(s.dir, SumsFile))
	}
}

// writeLocked writes one record; the first time all, as load and check have left them.
func (s *sums) writeLocked(place int, durably bool) (err error) {
	if s.failed {
		return nil
	}
	written := s.records[place : place+1]
	if s.file == nil {
		s.file, err = s.files.OpenReadWrite(s.files.PathJoin(s.dir, SumsFile),
			vfs.WriteCategoryUnspecified)
		if err != nil {
			s.file = nil
			return err
		}
		place, written = 0, s.records
	}
	var records []byte
	for _, r := range written {
		records = append(records, r.encode()...)
	}
	if _, err = s.file.WriteAt(records, int64(place)*sumBytes); err == nil && durably {
		err = s.file.Sync()
	}
	return err
}

// base returns the name of a file of the directory, "" for one of another.
func (s *sums) base(path string) string {
	if s.files.PathDir(path) != s.files.PathDir(s.files.PathJoin(s.dir, SumsFile)) {
		return ""
	}
	return s.files.PathBase(path)
}

// created remembers a marker, which is recorded when its directory is synced.
func (s *sums) created(base string) {
	if !isMarker(base) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marker = base
}

// syncedDir records a marker that is on disk now.
func (s *sums) syncedDir() {
	s.mu.Lock()
	marker := s.marker
	s.marker = ""
	s.mu.Unlock()
	if marker != "" {
		s.set(sum{name: marker})
	}
}

func (s *sums) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// check returns ErrDamaged for a database that has lost what was on disk, and ErrNoManifest for
// data that no MANIFEST names. It keeps the records for later ones.
func (s *sums) check() error {
	list, err := s.files.List(s.dir)
	if err != nil {
		return nil //nolint:nilerr // there is none yet; if it can't be read, Pebble reports that
	}
	if err := s.load(); err != nil {
		return err
	}
	found, err := pebble.Peek(s.dir, s.files)
	if err != nil {
		return err
	}
	if !found.Exists {
		return s.checkEmpty(list)
	}
	if err := s.checkMarker(list); err != nil {
		return err
	}
	manifest := s.files.PathBase(found.ManifestFilename)
	if !slices.ContainsFunc(s.records, func(r sum) bool { return r.name == manifest }) {
		// A crash came before it was recorded, or another program has written since.
		s.forgetJournals()
		return nil
	}
	for _, r := range s.records {
		if r.name == manifest || strings.HasSuffix(r.name, ".log") {
			if err := s.checkJournal(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetJournals makes the records of journals free places, on disk with the next record.
func (s *sums) forgetJournals() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.records {
		if !isMarker(r.name) {
			s.records[i] = sum{}
		}
	}
}

// load reads the records. It refuses a file without any, which is another one: a power cut leaves
// zeros, or records.
func (s *sums) load() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = nil
	file, err := s.files.Open(s.files.PathJoin(s.dir, SumsFile))
	if err != nil {
		return nil //nolint:nilerr // a new directory has none
	}
	defer file.Close()
	all, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("%s can't be read: %w: %w", SumsFile, ErrDamaged, err)
	}
	isRecord := len(bytes.Trim(all, "\x00")) == 0
	for record := range slices.Chunk(all, sumBytes) {
		r := decodeSum(record)
		s.records = append(s.records, r)
		isRecord = isRecord || bytes.Equal(r.encode(), record)
	}
	if !isRecord && len(all) >= sumBytes {
		return fmt.Errorf("%s is %w", SumsFile, ErrDamaged)
	}
	return nil
}

// checkEmpty returns ErrNoManifest for data that no MANIFEST names: Pebble would delete it and
// start with an empty database. A start that was killed before it had written anything has no
// MANIFEST and no data.
func (s *sums) checkEmpty(list []string) error {
	for _, name := range list {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob") ||
			strings.HasSuffix(name, ".log") {
			info, err := s.files.Stat(s.files.PathJoin(s.dir, name))
			if err == nil && info.Size() > 0 {
				return ErrNoManifest
			}
		}
	}
	for _, r := range s.records {
		if isMarker(r.name) {
			return fmt.Errorf("%s is missing: %w", r.name, ErrDamaged)
		}
	}
	return nil
}

// checkMarker refuses a marker that is older than the recorded one: it names an older list of
// files. The numbers in the names of markers grow.
func (s *sums) checkMarker(list []string) error {
	for _, r := range s.records {
		if isMarker(r.name) && !slices.ContainsFunc(list, func(name string) bool {
			return isMarker(name) && name >= r.name
		}) {
			return fmt.Errorf("%s is missing: %w", r.name, ErrDamaged)
		}
	}
	return nil
}

// checkJournal compares a journal with its record.
func (s *sums) checkJournal(r sum) error {
	file, err := s.files.Open(s.files.PathJoin(s.dir, r.name))
	if err != nil {
		return fmt.Errorf("%s can't be read: %w: %w", r.name, ErrDamaged, err)
	}
	defer file.Close()
	hash := crc32.New(castagnoli)
	n, err := io.Copy(hash, io.LimitReader(file, r.length))
	switch {
	case err != nil:
		return fmt.Errorf("%s can't be read: %w: %w", r.name, ErrDamaged, err)
	case n < r.length:
		return fmt.Errorf("%s has %d of %d bytes: %w", r.name, n, r.length, ErrDamaged)
	case hash.Sum32() != r.sum:
		return fmt.Errorf("the first %d bytes of %s are %w", r.length, r.name, ErrDamaged)
	}
	return nil
}
