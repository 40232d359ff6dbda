package controller

import (
	"os"
	"strings"
	"testing"
)

// finds are the words of the table "Starting" in docs/design.md.
var finds = map[string]func(*StartState) bool{
	"the server's history has diverged, or an epoch is open":    func(f *StartState) bool { return f.Diverged },
	"a watermark, and a list that had begun and is not settled": func(f *StartState) bool { return f.Pending },
	"a watermark, and nothing says to list":                     func(f *StartState) bool { return f.Watermark && !f.Lists },
	"`snapshot: never`":                                         func(f *StartState) bool { return f.NoSnapshot },
	"objects of a list that has ended":                          func(f *StartState) bool { return f.Known && f.Complete },
	"another replica has led":                                   func(f *StartState) bool { return f.Led() },
	"objects of a list that has not ended":                      func(f *StartState) bool { return f.Known },
	"a sink's broker holds events of it, and there was no watermark": func(f *StartState) bool {
		return f.Holds() && !f.Watermark
	},
	"nothing": func(*StartState) bool { return true },
}

var does = map[string]StartCase{
	"probe, list; only equality counts": Rewound, "probe, watch": Resume, "watch from now": Now,
	"list; gap `interrupted`": Interrupted, "list; gap `takeover`": Takeover,
	"list; gap `interrupted` before the first object that shows it": Continued,
	"next epoch; list; gap `forgotten` for that sink":               Forgotten,
	"first list": First,
}

// TestRecover compares Recover with the table in docs/design.md, for everything that can be found.
func TestRecover(t *testing.T) {
	page, err := os.ReadFile("../../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| what a start finds | it does |\n| --- | --- |\n")
	type row struct {
		holds func(*StartState) bool
		does  StartCase
	}
	var rows []row
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 2 {
			break
		}
		found, done := strings.TrimPrefix(cells[0], "| "), strings.TrimSuffix(cells[1], " |")
		holds, ok := finds[found]
		what, known := does[done]
		if !ok || !known {
			t.Fatalf("nobody knows these words: %s", line)
		}
		rows = append(rows, row{holds, what})
	}
	if len(rows) != len(finds) {
		t.Fatalf("docs/design.md has %d rows, want %d", len(rows), len(finds))
	}
	for bits := range 1 << 9 {
		is := func(n int) bool { return bits>>n&1 == 1 }
		f := &StartState{
			Diverged: is(0), Watermark: is(1), Lists: is(2), NoSnapshot: is(3), Known: is(4),
			Complete: is(5), Led: func() bool { return is(6) }, Holds: func() bool { return is(7) },
			Pending: is(8),
		}
		want := First
		for _, r := range rows {
			if r.holds(f) {
				want = r.does
				break
			}
		}
		if got := Recover(f); got != want {
			t.Errorf("%+v: case %d, want %d", f, got, want)
		}
	}
}

func TestQuestions(t *testing.T) {
	t.Run("nobody is asked where a case before holds", func(t *testing.T) {
		asked := func() bool { t.Error("it was asked"); return false }
		Recover(&StartState{Watermark: true, Led: asked, Holds: asked})
		Recover(&StartState{Known: true, Complete: true, Led: asked, Holds: asked})
		Recover(&StartState{Known: true, Led: func() bool { return false }, Holds: asked})
	})
	t.Run("nobody to ask is a no", func(t *testing.T) {
		if got := Recover(&StartState{}); got != First {
			t.Errorf("case %d", got)
		}
	})
}
