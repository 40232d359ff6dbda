package image

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// User is the id of the user and the group that the bridge runs as.
const User = 65532

// Places in the image.
const (
	Binary  = "usr/bin/bridge"
	Roots   = "etc/ssl/certs/ca-certificates.crt"
	State   = "var/lib/bridge/"
	Notices = "usr/share/doc/bridge/THIRD_PARTY_NOTICES.txt"
	Licence = "usr/share/doc/bridge/LICENSE"
)

// Content is what differs between images.
type Content struct {
	Binary, Licence, Notices []byte
}

// entry is a file of the image, or a directory when its name ends in a slash.
type entry struct {
	name  string
	mode  int64
	owner int
	data  []byte
}

func (c *Content) entries() []entry {
	return []entry{
		{"etc/", 0o755, 0, nil},
		{"etc/bridge/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\nbridge:x:%d:\n", User)},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil,
			"root:x:0:0:root:/:/sbin/nologin\nbridge:x:%d:%d:bridge:/nonexistent:/sbin/nologin\n", User,
			User)},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{Roots, 0o644, 0, authorities()},
		{"usr/", 0o755, 0, nil},
		{"usr/bin/", 0o755, 0, nil},
		{Binary, 0o755, 0, c.Binary},
		{"usr/share/", 0o755, 0, nil},
		{"usr/share/doc/", 0o755, 0, nil},
		{"usr/share/doc/bridge/", 0o755, 0, nil},
		{Licence, 0o644, 0, c.Licence},
		{Notices, 0o644, 0, c.Notices},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		// where a volume is mounted; without one it is writable too, unless the root is not
		{State, 0o750, User, nil},
	}
}

// authorities are the root certificates that Mozilla trusts, as the Go team publishes them. Those
// with constraints that a file can't express are left out.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			// a Buffer takes everything
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return out.Bytes()
}

// writeTar writes the image's only layer.
func (c *Content) writeTar(w io.Writer, created time.Time) error {
	out := tar.NewWriter(w)
	for _, e := range c.entries() {
		header := &tar.Header{
			Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.data)),
			ModTime: created, Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if e.data == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(e.data); err != nil {
			return err
		}
	}
	return out.Close()
}
