package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// CEL does not count what == costs before it is done, so it must not cost more than the objects.
func TestLinearTime(t *testing.T) {
	members := func(n, last int) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, `"%d":1,`, i)
		}
		return fmt.Sprintf(`{%s"last":%d}`, out.String(), last)
	}
	for name, tt := range map[string]struct {
		expression string
		data       func(size, last int) string
	}{
		"the last of many members differs": {`object.data != old.data`, members},
		"an item of a list differs": {`object.data == old.data`, func(n, last int) string {
			return "[" + strings.Repeat("1,", n) + fmt.Sprint(last) + "]"
		}},
		"a list of lists is looked into": {`object.data.size() == 0`, func(n, last int) string {
			return strings.Repeat("[1,", n/10) + fmt.Sprint(last) + strings.Repeat("]", n/10)
		}},
		"levels of objects": {`object.data == old.data`, func(n, last int) string {
			return strings.Repeat(`{"a":`, n/20) + members(n, last) + strings.Repeat("}", n/20)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := filter.New(filter.Rules{Expression: compile(t, tt.expression)}, pods)
			testkit.CheckLinear(t, 2_000, func(size int) func() {
				c := &event.Change{Op: event.Updated, Key: "shop/web", Object: object(tt.data(size, 1)), Old: object(tt.data(size, 2))}
				return func() {
					if _, err := f.Rejects(c); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

func object(data string) *resource.Object {
	return &resource.Object{Raw: []byte(`{"metadata":{"name":"web"},"data":` + data + `}`)}
}

// What is equal in CEL is equal in JSON too, whatever its text.
func TestEquality(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":[{"c":"x"}]}`, `{"b":[{"c":"x"}],"a":1}`, true},
		{`{"a":1.0}`, `{"a":1}`, true},
		{`{"a":"\u0062"}`, `{"\u0061":"b"}`, true},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":null}`, `{"b":null}`, false},
		{`[1,[2,{}]]`, `[1.0,[2,{}]]`, true},
		{`[1]`, `[1,2]`, false},
		{`[1,2]`, `[1]`, false},
		{`{}`, `[]`, false},
		{`{"a":{}}`, `{"a":[]}`, false},
	} {
		e := compile(t, "object.data == old.data")
		c := &event.Change{Op: event.Updated, Object: object(tt.a), Old: object(tt.b)}
		reason, err := filter.New(filter.Rules{Expression: e}, pods).Rejects(c)
		if err != nil || (reason == "") != tt.want {
			t.Errorf("%s == %s: %q, %v", tt.a, tt.b, reason, err)
		}
	}
	t.Run("with what an expression makes", func(t *testing.T) {
		for text, want := range map[string]bool{
			`object.data == {"b": [{"c": "x"}]}`:                      true,
			`{"b": [{"c": "x"}]} == object.data`:                      true,
			`object.data == {"a": 1}`:                                 false,
			`object.data.b == [{"c": "x"}]`:                           true,
			`[{"c": "x"}] == object.data.b`:                           true,
			`[{"c": "y"}] != object.data.b`:                           true,
			`object.data.b.exists(x, x.c == "x")`:                     true,
			`object.data.b + [{"c": "y"}] == object.data.b`:           false,
			`object.data.b[0].c == "x"`:                               true,
			`size(object.data.b) == 1 && type(object.data.b) == list`: true,
		} {
			c := &event.Change{Op: event.Added, Object: object(`{"b":[{"c":"x"}]}`)}
			reason, err := filter.New(filter.Rules{Expression: compile(t, text)}, pods).Rejects(c)
			if err != nil || (reason == "") != want {
				t.Errorf("%s: %q, %v", text, reason, err)
			}
		}
	})
}
