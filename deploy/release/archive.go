package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"os"
	"slices"
	"time"
)

// packed is a file of an archive.
type packed struct {
	name string
	mode int64
	data []byte
}

// writeArchive writes a .tar.gz that depends on nothing but what is in it.
func writeArchive(path string, files []packed, date time.Time) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	zipped := gzip.NewWriter(f) // without a name and a time
	out := tar.NewWriter(zipped)
	slices.SortFunc(files, func(a, b packed) int { return cmp.Compare(a.name, b.name) })
	for _, file := range files {
		header := &tar.Header{
			Name: file.name, Mode: file.mode, Size: int64(len(file.data)),
			ModTime: date, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(file.data); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zipped.Close()
}
