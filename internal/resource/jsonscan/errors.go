package jsonscan

import (
	"errors"
	"fmt"
)

// ErrSyntax is what every SyntaxError is.
var ErrSyntax = errors.New("not valid JSON")

// SyntaxError says where JSON is none. It has nothing of what stands there, which may be a
// secret.
type SyntaxError struct {
	// Offset of the first byte that can't be, in the whole input.
	Offset int64
	what   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s: %s at byte %d", ErrSyntax, e.what, e.Offset)
}

// Is says that it is ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }
