// Package jsonscan walks over JSON in one pass, while it is being read: it checks the syntax, finds
// where members and values begin and end, and reads only what it is asked for.
//
// In: bytes, or an io.Reader. Out: offsets in these bytes. It accepts what jsontext
// accepts with AllowDuplicateNames, and nothing else: UTF-8, escapes, surrogates, numbers and
// literals are checked, names that come twice are not. Its depth may be larger: the walk does not
// recurse, and needs one bit for each level.
//
// A Scanner that reads keeps everything from the last Release on, in one piece: what it returns are
// offsets from there, which stay when more is read. It never goes over a byte twice, wherever the
// input is cut into reads. When the input ends it stops with what the reader said; what is wrong is
// reported at the first byte that makes it so, which does not depend on how much was read beyond.
//
// The zero Scanner walks over nothing. A Scanner starts nothing and is not safe for concurrent use.
package jsonscan
