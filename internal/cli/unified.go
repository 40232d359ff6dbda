package cli

import (
	"bufio"
	"fmt"
	"io"

	"github.com/kubebridge/bridge/internal/cli/terminal"
)

// edit is a line of a diff: ' ' in both, '-' in the older text only, '+' in the newer one only.
type edit struct {
	kind byte
	line string
}

// maxEdits bounds the differences that are looked for: what differs in more is replaced as a whole.
const maxEdits = 2000

// diffLines is a shortest way from one text to another (Myers).
func diffLines(a, b []string) (edits []edit) {
	begin := 0
	for begin < len(a) && begin < len(b) && a[begin] == b[begin] {
		edits = append(edits, edit{' ', a[begin]})
		begin++
	}
	end := 0
	for end < len(a)-begin && end < len(b)-begin && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	edits = append(edits, shortest(a[begin:len(a)-end], b[begin:len(b)-end])...)
	for _, line := range a[len(a)-end:] {
		edits = append(edits, edit{' ', line})
	}
	return edits
}

// shortest keeps the furthest points of each number of edits, and walks back over them.
func shortest(a, b []string) []edit {
	furthest := map[int]int{1: 0} // x by x-y
	var trace []map[int]int
	for d := 0; d <= min(len(a)+len(b), maxEdits); d++ {
		step := make(map[int]int, 2*d+1)
		for k := -d; k <= d; k += 2 {
			x := furthest[k-1] + 1
			if k == -d || k != d && furthest[k-1] < furthest[k+1] {
				x = furthest[k+1]
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			step[k] = x
			if x >= len(a) && x-k >= len(b) {
				return backtrack(a, b, append(trace, step))
			}
		}
		trace, furthest = append(trace, step), step
	}
	var all []edit
	for _, line := range a {
		all = append(all, edit{'-', line})
	}
	for _, line := range b {
		all = append(all, edit{'+', line})
	}
	return all
}

func backtrack(a, b []string, trace []map[int]int) []edit {
	x, y := len(a), len(b)
	var reversed []edit
	for d := len(trace) - 1; d > 0; d-- {
		k, before := x-y, trace[d-1]
		from := k - 1
		if k == -d || k != d && before[k-1] < before[k+1] {
			from = k + 1
		}
		fromX := before[from]
		fromY := fromX - from
		for x > fromX && y > fromY {
			x, y = x-1, y-1
			reversed = append(reversed, edit{' ', a[x]})
		}
		if x > fromX {
			x--
			reversed = append(reversed, edit{'-', a[x]})
		} else {
			y--
			reversed = append(reversed, edit{'+', b[y]})
		}
	}
	for x > 0 {
		x--
		reversed = append(reversed, edit{' ', a[x]})
	}
	for i, j := 0, len(reversed)-1; i < j; i, j = i+1, j-1 {
		reversed[i], reversed[j] = reversed[j], reversed[i]
	}
	return reversed
}

// contextLines are those around a difference.
const contextLines = 3

var lineColours = map[byte]string{'-': "\x1b[31m", '+': "\x1b[32m", '@': "\x1b[36m"}

// writeUnified writes a unified diff; nothing but a word when the texts are equal.
func writeUnified(w io.Writer, titleA, titleB string, a, b []string, colour bool) error {
	edits := diffLines(a, b)
	out := bufio.NewWriter(w)
	put := func(kind byte, line string) {
		if start := lineColours[kind]; colour && start != "" {
			line = start + terminal.Plain(line) + "\x1b[0m"
		} else {
			line = terminal.Plain(line)
		}
		fmt.Fprintln(out, line)
	}
	differs := false
	atA, atB := 0, 0 // lines before edits[i]
	for i := 0; i < len(edits); {
		if edits[i].kind == ' ' {
			i, atA, atB = i+1, atA+1, atB+1
			continue
		}
		if !differs {
			put('-', "--- "+titleA)
			put('+', "+++ "+titleB)
			differs = true
		}
		begin := max(i-contextLines, 0)
		for begin < i && edits[begin].kind != ' ' { // never: a hunk has ended before
			begin++
		}
		end, same := i, 0
		for end < len(edits) && same <= 2*contextLines {
			if edits[end].kind == ' ' {
				same++
			} else {
				same = 0
			}
			end++
		}
		end -= max(same-contextLines, 0)
		before := i - begin
		countA, countB := 0, 0
		for _, e := range edits[begin:end] {
			countA += btoi(e.kind != '+')
			countB += btoi(e.kind != '-')
		}
		put('@', fmt.Sprintf("@@ -%d,%d +%d,%d @@", atA-before+1, countA, atB-before+1, countB))
		for _, e := range edits[begin:end] {
			put(e.kind, string(e.kind)+e.line)
		}
		i, atA, atB = end, atA-before+countA, atB-before+countB
	}
	if !differs {
		fmt.Fprintln(out, "no difference")
	}
	return out.Flush()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
