package docs_test

import (
	"slices"
	"strings"
	"testing"
)

// What is wrong with a list is found.
func TestCaseProblems(t *testing.T) {
	upstream := []goTest{
		{file: "a/x_test.go", name: "TestOne"},
		{file: "a/x_test.go", name: "TestTable", subtests: []string{"first", "second/half"}},
	}
	ours := []goTest{{file: "reflector/y_test.go", name: "TestOurs", literals: map[string]bool{"sub": true}}}
	const one, table = "TestOne | `reflector.TestOurs/sub`\n", "TestTable | not here: it can't be\n"
	tests := []struct {
		name, doc string
		want      []string
	}{
		{"all is there", one + table, nil},
		{"each subtest", one + "TestTable/first | `reflector.TestOurs`\nTestTable/second/half | not here: it can't be\n", nil},
		{"a test is missing", one, []string{"a/x_test.go: TestTable is not listed"}},
		{"a subtest is missing", one + "TestTable/first | not here: it can't be\n", []string{"a/x_test.go: TestTable/second/half is not listed"}},
		{"a subtest that is gone", one + "TestTable/first | `reflector.TestOurs`\nTestTable/second/half | `reflector.TestOurs`\n" +
			"TestTable/third | `reflector.TestOurs`\n", []string{"a/x_test.go: TestTable/third is listed twice, or is no subtest"}},
		{"a test twice", one + one + table, []string{
			"a/x_test.go: TestOne is listed twice, or is no subtest", "a/x_test.go: TestOne is listed twice, or is no subtest",
		}},
		{"a test that is gone", one + table + "TestGone | not here: it can't be\n", []string{"a/x_test.go: TestGone is no test of client-go"}},
		{"a test of ours that is gone", "TestOne | `reflector.TestGone`\n" + table, []string{"a/x_test.go: TestOne: there is no reflector.TestGone"}},
		{"a subtest of ours that is gone", "TestOne | `reflector.TestOurs/gone`\n" + table, []string{"a/x_test.go: TestOne: there is no reflector.TestOurs/gone"}},
		{"a test of another package", "TestOne | `store.TestOurs`\n" + table, []string{"a/x_test.go: TestOne: there is no store.TestOurs"}},
		{"a reason that names a test that is gone", "TestOne | not here: see `reflector.TestGone`\n" + table, []string{"a/x_test.go: TestOne: there is no reflector.TestGone"}},
		{"no answer", "TestOne | \n" + table, []string{"a/x_test.go: TestOne has neither a test nor a reason"}},
		{"an answer as above", one + "TestTable/first | not here: it can't be\nTestTable/second/half | as above\n", nil},
		{"nothing above", "TestOne | as above\n" + table, []string{"a/x_test.go: TestOne has neither a test nor a reason"}},
		{"above is gone", "TestOne | `reflector.TestGone`\n" + strings.Replace(table, "not here: it can't be", "as above", 1), []string{
			"a/x_test.go: TestOne: there is no reflector.TestGone", "a/x_test.go: TestTable: there is no reflector.TestGone",
		}},
		{"no reason", "TestOne | not here: so\n" + table, []string{"a/x_test.go: TestOne has neither a test nor a reason"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := compareCases("## a/x_test.go\n\n"+tt.doc, upstream, ours); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// Reading finds the tests of this file as they are.
func TestReadTests(t *testing.T) {
	for _, test := range readTests(t, ".") {
		switch test.name {
		case "TestCaseProblems":
			if test.file != "compare_test.go" || !test.literals["all is there"] || test.literals["TestReadTests"] {
				t.Errorf("read %+v", test)
			}
		case "TestReadTests":
			if !slices.Equal(test.subtests, []string{"a table's", "a call's"}) {
				t.Errorf("subtests %q", test.subtests)
			}
		}
	}
	for _, tt := range []struct{ name string }{{name: "a table's"}} {
		t.Run(tt.name, func(*testing.T) {})
	}
	t.Run("a call's", func(*testing.T) {})
}
