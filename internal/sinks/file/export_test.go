package file

// FullDisk makes the sink's disk full when room returns how many bytes of a write it takes; room is
// negative for all of them.
func FullDisk(s *Sink, err error, room func() int) {
	s.file.openFile = func(path string) (osFile, int64, error) {
		f, size, openErr := openFile(path)
		return &narrow{f, err, room}, size, openErr
	}
}

// narrow is a file on a disk that may be full.
type narrow struct {
	osFile
	err  error
	room func() int
}

func (n *narrow) Write(p []byte) (int, error) {
	room := n.room()
	if room < 0 || room >= len(p) {
		return n.osFile.Write(p)
	}
	taken, err := n.osFile.Write(p[:room])
	if err == nil {
		err = n.err
	}
	return taken, err
}
