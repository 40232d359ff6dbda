package reflector

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubebridge/bridge/internal/resource"
)

// errEnough ends the reading of a list early.
var errEnough = errors.New("enough was read")

// page is what the answer to one list request has beside its items.
type page struct {
	version  resource.Version
	next     string // continue token
	hasItems bool
}

// readPage splits a list while it is being read: item is called before each item, and reads it.
// metadata gets the page when its metadata was read, which for lists of custom resources is after
// the items; it may be nil.
func readPage(v *values, item func() error, metadata func(page) error) (page, error) {
	var p page
	err := v.begin()
	for err == nil && v.Next('}') {
		v.release()
		err = p.member(v, item, metadata)
	}
	if err = cmp.Or(err, v.Err()); err != nil {
		return p, err
	}
	return p, p.finish(v)
}

func (p *page) member(v *values, item func() error, metadata func(page) error) error {
	switch string(v.Key()) {
	case "items":
		if p.hasItems {
			return &unreadableError{err: resource.ErrDuplicate}
		}
		p.hasItems = true
		return readItems(v, item)
	case "metadata":
		if err := p.readMetadata(v); err != nil || metadata == nil {
			return err
		}
		return metadata(*p)
	case "kind":
		return checkListKind(v)
	default:
		_, err := v.value()
		return err
	}
}

// finish reports whether the page was complete and the only value in the answer.
func (p *page) finish(v *values) error {
	v.release()
	v.begun = false
	switch atEnd := v.AtEnd(); {
	case !atEnd:
		return &unreadableError{err: errors.New("something follows the list in the answer")}
	case v.Ended() != io.EOF: //nolint:errorlint // one within another error is not the answer's end
		return v.Ended()
	case !p.hasItems:
		return &unreadableError{err: errors.New("list without items")}
	case p.version == "":
		return &unreadableError{err: errors.New("list without metadata.resourceVersion")}
	}
	return nil
}

func readItems(v *values, item func() error) error {
	if v.Peek() == 'n' { // an empty list of some servers
		_, err := v.value()
		return err
	}
	err := v.enter('[')
	for err == nil && v.Next(']') {
		v.release()
		err = item()
	}
	return cmp.Or(err, v.Err())
}

func (p *page) readMetadata(v *values) error {
	raw, err := v.value()
	if err != nil {
		return err
	}
	if p.version != "" {
		return &unreadableError{err: resource.ErrDuplicate}
	}
	var m struct {
		ResourceVersion resource.Version `json:"resourceVersion"`
		Continue        string           `json:"continue"`
		ShardInfo       json.RawMessage  `json:"shardInfo"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return &unreadableError{err: fmt.Errorf("metadata of the list: %w", err)}
	}
	if err := m.ResourceVersion.Check(); err != nil {
		return &unreadableError{err: err}
	}
	if len(m.ShardInfo) > 0 && string(m.ShardInfo) != "null" {
		return &unreadableError{err: errors.New("the list is one shard of the collection, which " +
			"was not asked for")}
	}
	p.version, p.next = m.ResourceVersion, m.Continue
	return nil
}

// checkListKind refuses what a server may send in place of the requested list.
func checkListKind(v *values) error {
	raw, err := v.value()
	if err != nil {
		return err
	}
	switch kind := string(raw); kind {
	case `"Table"`, `"PartialObjectMetadataList"`, `"Status"`:
		return &unreadableError{err: fmt.Errorf("%s in place of a list", kind)}
	}
	return nil
}
