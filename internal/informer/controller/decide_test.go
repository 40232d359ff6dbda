package controller

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// The words of the table "Deciding" in docs/design.md. The delta is of uid "u" in version 50.

var tableDeltas = map[string]func() (deltafifo.Delta, List){
	"Added":                func() (deltafifo.Delta, List) { return deltaOf(deltafifo.Added), List{} },
	"Updated":              func() (deltafifo.Delta, List) { return deltaOf(deltafifo.Updated), List{} },
	"Replaced in a relist": func() (deltafifo.Delta, List) { return deltaOf(deltafifo.Replaced), relisted() },
	"Replaced in a first list": func() (deltafifo.Delta, List) {
		return deltaOf(deltafifo.Replaced), List{Relist: resource.Relist{Kind: resource.RelistInitial}}
	},
	"Replaced with `snapshot: always`": func() (deltafifo.Delta, List) {
		return deltaOf(deltafifo.Replaced), List{Relist: resource.Relist{Kind: resource.RelistInitial}, Round: 7}
	},
	"Replaced after a rewind": func() (deltafifo.Delta, List) {
		return deltaOf(deltafifo.Replaced), List{Relist: resource.Relist{Kind: resource.RelistRewound}}
	},
	"Replaced after a rewind and a crash": func() (deltafifo.Delta, List) {
		return deltaOf(deltafifo.Replaced), List{Relist: resource.Relist{Kind: resource.RelistRewound}, Unclean: true}
	},
	"Replaced in a list of one namespace": func() (deltafifo.Delta, List) {
		return deltaOf(deltafifo.Replaced), List{Relist: resource.Relist{Kind: resource.RelistEnters, Namespace: "shop"}}
	},
	"Deleted": func() (deltafifo.Delta, List) { return deltaOf(deltafifo.Deleted), List{} },
	"Deleted with an unknown final state": func() (deltafifo.Delta, List) {
		d := deltaOf(deltafifo.Deleted)
		d.Object, d.Version, d.FinalStateUnknown = nil, "50", true
		return d, relisted()
	},
	"Deleted as its namespace leaves": func() (deltafifo.Delta, List) {
		d := deltaOf(deltafifo.Deleted)
		d.Object, d.Version, d.FinalStateUnknown = nil, "50", true
		leaves := resource.Relist{Kind: resource.RelistLeaves, Namespace: "shop"}
		return d, List{Selective: true, Relist: leaves}
	},
	"Unselected": func() (deltafifo.Delta, List) { return deltaOf(deltafifo.Unselected), List{} },
	"Unselected in a relist": func() (deltafifo.Delta, List) {
		d := deltaOf(deltafifo.Unselected)
		d.Listed = true
		return d, relisted()
	},
	"Skipped (an item that can't be understood)": func() (deltafifo.Delta, List) {
		d := deltaOf(deltafifo.Skipped)
		d.Object, d.Skipped = nil, &resource.Identity{Key: d.Key, UID: "u", Version: "50"}
		return d, relisted()
	},
	"Sync": func() (deltafifo.Delta, List) {
		d := deltaOf(deltafifo.Sync)
		d.Object = nil
		return d, List{}
	},
	"Sync of a snapshot": func() (deltafifo.Delta, List) {
		d := deltaOf(deltafifo.Sync)
		d.Object, d.Snapshot = nil, true
		return d, List{}
	},
}

func deltaOf(typ deltafifo.DeltaType) deltafifo.Delta {
	obj := &resource.Object{Meta: resource.Meta{Namespace: "shop", Name: "a", UID: "u", Version: "50"}}
	return deltafifo.Delta{Type: typ, Key: obj.Key(), Object: obj}
}

func relisted() List { return List{Relist: resource.Relist{Reason: resource.ReasonExpired}} }

var tableKnown = map[string][]KnownState{
	"nothing":         {{}},
	"gone":            {{Found: true, Record: store.Record{UID: "u", Version: "40", Deleted: true}}},
	"same uid":        {{Found: true, Record: store.Record{UID: "u", Version: "40"}}},
	"another uid":     {{Found: true, Record: store.Record{UID: "other", Version: "40"}}},
	"this version":    {{Found: true, Record: store.Record{UID: "u", Version: "50"}}},
	"a later version": {{Found: true, Record: store.Record{UID: "u", Version: "60"}}},
	"changed since":   {{Found: true, Record: store.Record{UID: "u", Version: "40"}, Changed: true}},
	"announced":       {{Left: []store.Record{{UID: "other", Version: "40"}}}},
	"delete announced": {
		{Found: true, DeleteAnnounced: true, Record: store.Record{UID: "u", Version: "40"}},
		{Found: true, DeleteAnnounced: true, Record: store.Record{UID: "u", Version: "50"}},
	},
	"gone since": {
		{Found: true, Record: store.Record{UID: "u", Version: "50", Deleted: true}},
		{Found: true, Record: store.Record{UID: "u", Version: "60", Deleted: true}},
	},
}

// TestDecide compares Decide with the table in docs/design.md.
func TestDecide(t *testing.T) {
	rows := readDecisions(t)
	if len(rows) < 30 {
		t.Fatalf("docs/design.md has a table of %d rows", len(rows))
	}
	met := map[string]bool{}
	for _, row := range rows {
		for delta := range strings.SplitSeq(row.delta, "; ") {
			met[delta] = true
			for known := range strings.SplitSeq(row.known, "; ") {
				t.Run(delta+"/"+known, func(t *testing.T) {
					checkDecision(t, delta, known, row.change)
				})
			}
		}
	}
	for delta := range tableDeltas {
		if !met[delta] {
			t.Errorf("the table says nothing of %s", delta)
		}
	}
}

func checkDecision(t *testing.T, delta, known, change string) {
	makeDelta := tableDeltas[delta]
	if makeDelta == nil || tableKnown[known] == nil {
		t.Fatal("the table has words that nobody knows")
	}
	for _, k := range tableKnown[known] {
		d, l := makeDelta()
		k.Outside = l.Leaves()
		got := Decide(nil, &d, &k, &l)
		var words []string
		for i := range got {
			checkDetails(t, &got[i], &d, &k)
			words = append(words, wordsOf(&got[i]))
		}
		if len(words) == 0 {
			words = []string{"none"}
		}
		if text := strings.Join(words, ", "); text != change {
			t.Errorf("decided %q, want %q", text, change)
		}
	}
}

func wordsOf(c *Decision) string {
	op := string(c.Op)
	words := []string{strings.ToUpper(op[:1]) + op[1:]}
	if c.Initial {
		words = append(words, "initial")
	}
	if c.Inferred {
		words = append(words, "inferred")
	}
	return strings.Join(words, " ")
}

// checkDetails checks what holds for each decision.
func checkDetails(t *testing.T, c *Decision, d *deltafifo.Delta, k *KnownState) {
	t.Helper()
	isKnown := c.UID == k.Record.UID && c.Origin == FromState
	isLeft := c.Origin == FromAnnouncement &&
		slices.ContainsFunc(k.Left, func(r store.Record) bool { return r.UID == c.UID })
	isDelta := c.Origin == FromDelta && d.Object != nil && c.Object == d.Object &&
		c.UID == d.Object.UID && c.Version == d.Object.Version
	if !isKnown && !isLeft && !isDelta {
		t.Errorf("%s is of uid %q, version %s, with an object from %d", wordsOf(c), c.UID, c.Version, c.Origin)
	}
	if c.Key != d.Key {
		t.Errorf("its key is %q", c.Key)
	}
	isUpdate := c.Op == event.Updated || c.Op == event.Deleted && c.UID == k.Record.UID && k.alive()
	if isUpdate && c.Before != k.Record.Version || !isUpdate && !isLeft && c.Before != "" {
		t.Errorf("%s is behind %q", wordsOf(c), c.Before)
	}
	if version := cmp.Or(c.DeltaVersion, c.Version); c.Op != event.Synced && version != "50" {
		t.Errorf("%s is of a delta of version %q", wordsOf(c), version)
	}
}

type decisionRow struct{ delta, known, change string }

// readDecisions reads the table. An empty cell says the same as the one above.
func readDecisions(t *testing.T) (rows []decisionRow) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| delta | known | change |\n| --- | --- | --- |\n")
	delta := ""
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			return rows
		}
		if cell := strings.TrimSpace(cells[1]); cell != "" {
			delta = cell
		}
		rows = append(rows, decisionRow{delta, strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])})
	}
	return rows
}

func TestCauses(t *testing.T) {
	selective := func(l List) List { l.Selective = true; return l }
	left := List{Relist: resource.Relist{Kind: resource.RelistLeaves, Namespace: "shop"}}
	ended := List{Relist: resource.Relist{Kind: resource.RelistDeleted, Namespace: "shop"}}
	entering := List{Relist: resource.Relist{Kind: resource.RelistEnters, Namespace: "shop"}}
	same, outside := tableKnown["same uid"][0], tableKnown["same uid"][0]
	outside.Outside = true
	missing, _ := tableDeltas["Deleted with an unknown final state"]()
	added, updated := deltaOf(deltafifo.Added), deltaOf(deltafifo.Updated)
	serverSelects := List{Selective: true, Leavable: true}
	tests := []struct {
		name   string
		delta  deltafifo.Delta
		known  KnownState
		list   List
		want   string
		forget bool
	}{
		{"all objects are selected", added, KnownState{}, List{}, "", false},
		{"an object is made", added, KnownState{}, selective(List{}), event.CauseCreated, false},
		{
			"an update brings one in", updated,
			KnownState{},
			List{Selective: true, Enterable: true},
			event.CauseEntered, false,
		},
		{"an update that may have been missed", updated, KnownState{}, selective(List{}), event.CauseUnknown, false},
		{"an update of what could not be read before", updated, KnownState{}, List{}, event.CauseUnknown, false},
		{"the API server selects", added, KnownState{}, serverSelects, event.CauseUnknown, false},
		{"the API server selects in a list", deltaOf(deltafifo.Replaced), KnownState{}, serverSelects, "", false},
		{"a namespace comes in", deltaOf(deltafifo.Replaced), KnownState{}, selective(entering), event.CauseEntered, false},
		{"an object is deleted", deltaOf(deltafifo.Deleted), same, selective(List{}), event.CauseDeleted, false},
		{"an object left or was deleted", deltaOf(deltafifo.Deleted), same, serverSelects, event.CauseUnknown, false},
		{"a list lacks an object", missing, same, selective(relisted()), event.CauseDeleted, false},
		{"its namespace has left", missing, outside, selective(left), event.CauseLeft, true},
		{"its namespace is deleted", missing, outside, selective(ended), event.CauseDeleted, true},
		{"an object leaves", deltaOf(deltafifo.Unselected), same, selective(List{}), event.CauseLeft, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Decide(nil, &tt.delta, &tt.known, &tt.list)
			if len(got) != 1 || got[0].Cause != tt.want || got[0].Forget != tt.forget {
				t.Errorf("decided %+v, want the cause %q, and forget %v", got, tt.want, tt.forget)
			}
		})
	}
}

func TestGoneAsOf(t *testing.T) {
	two := KnownState{Left: []store.Record{{UID: "one", Version: "30"}, {UID: "two", Version: "45"}}}
	missing, list := tableDeltas["Deleted with an unknown final state"]()
	tests := []struct {
		name  string
		delta deltafifo.Delta
		known KnownState
		want  []resource.Version
	}{
		{"what a list lacks is gone as of the list", missing, two, []resource.Version{"44", "50"}},
		{
			"what a list lacks that is older than what is known", missing,
			KnownState{Found: true, Record: store.Record{UID: "u", Version: "60"}},
			[]resource.Version{"60"},
		},
		{
			"what another has followed is gone before that one's version",
			deltaOf(deltafifo.Replaced), two,
			[]resource.Version{"44", "49", ""},
		},
		{
			"what another has replaced is gone before that one's version",
			deltaOf(deltafifo.Updated), tableKnown["another uid"][0],
			[]resource.Version{"49", ""},
		},
		{
			"what was announced before an object of the watch is gone, what was announced behind it is not",
			deltaOf(deltafifo.Added),
			KnownState{Left: []store.Record{{UID: "one", Version: "30"}, {UID: "u", Version: "50"}, {UID: "two", Version: "60"}}},
			[]resource.Version{"49", ""},
		},
		{
			"of a name that another has, which was announced in an earlier version",
			deltaOf(deltafifo.Replaced),
			KnownState{
				Found: true, Record: store.Record{UID: "other", Version: "40"},
				Left: []store.Record{{UID: "u", Version: "45"}},
			},
			[]resource.Version{"44", ""},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []resource.Version
			for _, c := range Decide(nil, &tt.delta, &tt.known, &list) {
				got = append(got, c.GoneAsOf)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("gone as of %q, want %q", got, tt.want)
			}
		})
	}
}
