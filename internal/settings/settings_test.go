package settings_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubebridge/bridge/internal/settings"
)

// shop is a configuration that has nothing to do with the bridge's.
type shop struct {
	Open    time.Duration `yaml:"open" default:"8h"`
	Owner   owner         `yaml:"owner"`
	Shelves []shelf       `yaml:"shelves"`
}

type owner struct {
	FirstName string          `yaml:"firstName"`
	Password  settings.Secret `yaml:"password"`
}

type shelf struct {
	Name  string        `yaml:"name"`
	Room  settings.Size `yaml:"room" default:"1KiB"`
	Goods []string      `yaml:"goods"`
}

// read reads a shop, and returns what is wrong with it.
func read(t *testing.T, text string, flags map[string]*pflag.Flag) (*shop, *settings.Report) {
	t.Helper()
	c := &shop{Shelves: []shelf{{Name: "default"}}}
	report := &settings.Report{Origins: settings.Origins{}}
	r := settings.Reader{
		File: "shop.yaml", Data: []byte(text), Flags: flags, Prefix: "SHOP_",
		OtherNames: map[string]string{"space": "room"},
	}
	items, err := r.Decode(c, report)
	if err != nil {
		t.Fatal(err)
	}
	items.Apply()
	return c, report
}

func TestLayers(t *testing.T) {
	flags := pflag.NewFlagSet("shop", pflag.ContinueOnError)
	flags.String("owner", "", "")
	if err := flags.Parse([]string{"--owner", "Flag"}); err != nil {
		t.Fatal(err)
	}
	const text = "open: 7d\nowner: {firstName: File}\nshelves: [{name: left}, {name: right-side, room: 2KiB}]\n"
	t.Setenv("SHOP_OPEN", "1h")
	t.Setenv("SHOP_OWNER_FIRST_NAME", "Variable")
	t.Setenv("SHOP_SHELVES_0_ROOM", "4KiB")
	t.Setenv("SHOP_SHELVES_RIGHT_SIDE_GOODS", "bread, wine")
	c, report := read(t, text, map[string]*pflag.Flag{"owner.firstName": flags.Lookup("owner")})
	got := fmt.Sprintln(c.Open, c.Owner.FirstName, c.Shelves)
	if want := "1h0m0s Flag [{left 4KiB []} {right-side 2KiB [bread wine]}]\n"; got != want || report.Err() != nil {
		t.Errorf("got  %s, %v\nwant %s", got, report.Err(), want)
	}
	for path, want := range map[string]string{
		"open": "SHOP_OPEN", "owner.firstName": "--owner", "shelves[0].room": "SHOP_SHELVES_0_ROOM",
		"shelves[1].room": "shop.yaml:3", "shelves[1].goods": "SHOP_SHELVES_RIGHT_SIDE_GOODS",
	} {
		if got := report.Origins.Of(path).Text; got != want {
			t.Errorf("%s comes from %s, want %s", path, got, want)
		}
	}
}

func TestDefaultListStays(t *testing.T) {
	if c, _ := read(t, "open: 1h", nil); len(c.Shelves) != 1 || c.Shelves[0].Name != "default" {
		t.Errorf("got %v", c.Shelves)
	}
	if c, _ := read(t, "shelves: []", nil); len(c.Shelves) != 0 {
		t.Errorf("got %v", c.Shelves)
	}
}

func TestProblems(t *testing.T) {
	for name, test := range map[string]struct{ text, variable, want string }{
		"other name":   {"shelves: [{space: 1KiB}]", "", `shop.yaml:1: shelves[0].space: unknown key: did you mean "room"?`},
		"misspelt":     {"opne: 1h", "", `shop.yaml:1: opne: unknown key: did you mean "open"?`},
		"wrong value":  {"open: always", "", `shop.yaml:1: open: want a duration such as 500ms, 30s or 7d, got "always"`},
		"secret":       {"owner: {password: [a]}", "", `shop.yaml:1: owner.password: want a string, got a list`},
		"variable":     {"", "SHOP_OPNE", "SHOP_OPNE: no such key: did you mean SHOP_OPEN?"},
		"no such item": {"", "SHOP_SHELVES_LEFT_ROOM", "SHOP_SHELVES_LEFT_ROOM: no such key: it names none of the shelves, which are default"},
		"without item": {"", "SHOP_GOODS", "SHOP_GOODS: no such key; a key of one of the shelves has its name or number in it: SHOP_SHELVES_0_GOODS"},
		"of others":    {"", "SHOP_WINDOW", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.variable != "" {
				t.Setenv(test.variable, "1")
			}
			_, report := read(t, test.text, nil)
			got := []string{}
			for _, p := range settings.Problems(report.Err()) {
				got = append(got, p.Error())
			}
			if want := strings.Split(test.want, "\n"); test.want == "" && len(got) > 0 || test.want != "" && !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]settings.Size{
		"0": 0, "512": 512, "1KiB": 1 << 10, "64MiB": 64 << 20, "64Mi": 64 << 20, "10 GiB": 10 << 30, "2TiB": 2 << 40,
		"500kB": 500e3, "500KB": 500e3, "1.5GB": 1.5e9, "7B": 7, "-1": -1,
	} {
		got, err := settings.ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
		if again, err := settings.ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%q prints as %q, which reads as %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "MiB", "1 parsec", "9e99GiB", "NaN", "Inf", "1,5MiB", "9223372036854775808"} {
		if got, err := settings.ParseSize(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}

// A token that another user put into the directory is not used.
func TestPlantedToken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a token of before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{0, 4711} { // root is this user
		if err := os.Chown(file, uid, -1); err != nil {
			t.Fatal(err)
		}
		if err := settings.MakeToken(file); err != nil {
			t.Fatal(err)
		}
		token, err := settings.ReadToken(file)
		if err != nil || (token == "a token of before") != (uid == 0) {
			t.Errorf("of user %d: %q, %v", uid, token, err)
		}
	}
}
