package table

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed sql/views.sql.tmpl
var viewsTemplate string

// Engines are those that Views knows.
var Engines = []string{"duckdb", "clickhouse", "trino", "spark"}

// engine is how an engine writes what differs between them.
type engine struct {
	prologue string
	// stateAt begins its definition: what stands before all names, and the name, are put in.
	stateAt string
	// asked is a query with the time of state_at, for an engine that wants each ? by itself.
	asked, at, now  string
	timestamp, hour string
	// first is of several lists the one that there is.
	first string
	// text, array and raw are of a member of JSON: the column and the path are put in.
	text, array, raw string
	each             string
	path             func(names []string) string
	// tuple is what stands around stateColumns, and inTuple is each of them: tuples are compared by
	// their first members first. member is one of the tuple version: name or number is put in.
	tuple, inTuple, member string
}

// stateColumns are the members of a tuple, of which the newest version of an object has the
// greatest: four columns are its order, and the others what else is read of it.
var stateColumns = []string{"incarnation", "sequence", "time", "position", "deleted", "id", "lane", "snapshot"}

// eachStateColumn lists what a format makes of the name and the number of each.
func eachStateColumn(format string) string {
	var parts []string
	for i, name := range stateColumns {
		parts = append(parts, fmt.Sprintf(format, name, i+1))
	}
	return strings.Join(parts, ", ")
}

func jsonPath(names []string) string { return "'$." + strings.Join(names, ".") + "'" }

// function is how a table is named that no catalog of the engine has: its directory, and the file
// of its metadata, are put in.
var tableFunctions = map[string]string{
	"duckdb":     "iceberg_scan('%[1]s/%[2]s')",
	"clickhouse": "icebergLocal('%[1]s', SETTINGS iceberg_metadata_file_path = '%[2]s')",
}

var engines = map[string]engine{
	"duckdb": {
		prologue: "INSTALL iceberg; LOAD iceberg; SET TimeZone = 'UTC';",
		stateAt:  "CREATE OR REPLACE MACRO %[1]s%[2]s(moment) AS TABLE", at: "CAST(moment AS TIMESTAMPTZ)",
		now: "now()", first: "coalesce",
		timestamp: "TIMESTAMPTZ '%s+00'", hour: "date_trunc('hour', %s)",
		text: "json_extract_string(%s, %s)", array: "CAST(json_extract(%s, %s) AS JSON[])",
		raw:  "CAST(json_extract(%s, %s) AS TEXT)",
		each: ", unnest(%[1]s) AS u(%[2]s)", path: jsonPath,
		tuple: "{%s}", inTuple: "'%[1]s': %[1]s", member: "version.%[1]s",
	},
	"clickhouse": {
		prologue: "SET allow_experimental_analyzer = 1;",
		stateAt:  "CREATE OR REPLACE VIEW %[1]s%[2]s AS", at: "{at:DateTime64(6, 'UTC')}", now: "now64(6)", first: "arrayConcat",
		timestamp: "toDateTime64('%s', 6, 'UTC')", hour: "toStartOfHour(%s)",
		text:  "JSONExtractString(assumeNotNull(%s), %s)",
		array: "JSONExtractArrayRaw(assumeNotNull(%s), %s)",
		raw:   "JSONExtractRaw(assumeNotNull(%s), %s)",
		each:  "ARRAY JOIN %[1]s AS %[2]s",
		path:  func(names []string) string { return "'" + strings.Join(names, "', '") + "'" },
		tuple: "tuple(%s)", inTuple: "%[1]s", member: "version.%[2]d",
	},
	"trino": {
		prologue: "-- state_at lives as long as the session: EXECUTE state_at USING TIMESTAMP '2026-11-21 10:00:00 UTC'",
		stateAt:  "PREPARE %[2]s FROM", asked: "\nWITH asked AS (SELECT ? AS moment)", at: "(SELECT moment FROM asked)",
		now: "current_timestamp", first: "coalesce",
		timestamp: "TIMESTAMP '%s UTC'", hour: "date_trunc('hour', %s)",
		text: "json_extract_scalar(%s, %s)", array: "CAST(json_extract(%s, %s) AS ARRAY(JSON))",
		raw:  "json_format(json_extract(%s, %s))",
		each: "CROSS JOIN UNNEST(%[1]s) AS u(%[2]s)", path: jsonPath,
		tuple: "ROW(%s)", inTuple: "%[1]s", member: "version[%[2]d]",
	},
	"spark": {
		prologue: "-- The function state_at needs Spark 4, without Iceberg's SQL extensions: their parser refuses it.\n" +
			"SET TIME ZONE 'UTC';",
		stateAt: "CREATE OR REPLACE FUNCTION %[1]s%[2]s(at TIMESTAMP) RETURNS TABLE RETURN", at: "state_at.at",
		now: "current_timestamp()", first: "coalesce",
		timestamp: "TIMESTAMP '%s+00:00'", hour: "date_trunc('HOUR', %s)",
		text: "get_json_object(%s, %s)", array: "from_json(get_json_object(%s, %s), 'array<string>')",
		raw:  "get_json_object(%s, %s)",
		each: "LATERAL VIEW explode(%[1]s) u AS %[2]s", path: jsonPath,
		tuple: "struct(%s)", inTuple: "%[1]s", member: "version.%[1]s",
	},
}

// Views returns the statements that make the views, for an engine. name is how the engine names
// the table changes, with coverage beside it; "" for the files that the catalog of a directory has
// now. prefix is put before the names of the views: "lake.views.".
func Views(ctx context.Context, p Place, of, name, prefix string) (string, error) {
	e, known := engines[of]
	if !known {
		return "", fmt.Errorf("engine %q: want one of %s", of, strings.Join(Engines, ", "))
	}
	intervals := ""
	if at := strings.LastIndex(name, changes.name); at >= 0 { // it may be quoted
		intervals = name[:at] + coverageSpec.name + name[at+len(changes.name):]
	} else if name != "" {
		return "", fmt.Errorf("table %q: want the name of the table %s", name, changes.name)
	}
	if name == "" {
		var err error
		if name, intervals, err = tableNames(ctx, &p, of); err != nil {
			return "", err
		}
	}
	t, err := template.New("views").Funcs(template.FuncMap{
		"comment":      func(text string) string { return "-- " + text },
		"table":        func() string { return name },
		"intervals":    func() string { return intervals },
		"views":        func() string { return prefix },
		"columns":      versionColumns,
		"view":         func(view string) string { return "CREATE OR REPLACE VIEW " + prefix + view + " AS" },
		"stateColumns": func() string { return strings.Join(stateColumns, ", ") },
		"tuple":        func() string { return fmt.Sprintf(e.tuple, eachStateColumn(e.inTuple)) },
		"members":      func() string { return eachStateColumn(e.member + " AS %[1]s") },
		"stateAt":      func(view string) string { return fmt.Sprintf(e.stateAt, prefix, view) },
		"timestamp":    func(text string) string { return fmt.Sprintf(e.timestamp, text) },
		"hour":         func(column string) string { return fmt.Sprintf(e.hour, column) },
		"first":        func() string { return e.first },
		"each":         func(list, item string) string { return fmt.Sprintf(e.each, list, item) },
		"text":         func(column string, names ...string) string { return fmt.Sprintf(e.text, column, e.path(names)) },
		"raw":          func(column string, names ...string) string { return fmt.Sprintf(e.raw, column, e.path(names)) },
		"array":        func(column string, names ...string) string { return fmt.Sprintf(e.array, column, e.path(names)) },
	}).Parse(viewsTemplate)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = t.Execute(&text, map[string]string{
		"Prologue": e.prologue, "Asked": e.asked, "At": e.at, "Now": e.now,
	})
	return text.String(), err
}

// versionColumns are the columns of a row about a version of an object.
func versionColumns() (names []string) {
	for _, f := range changesSchema.Fields()[:changesSchema.NumFields()-len(actorColumns)] {
		names = append(names, f.Name)
	}
	return names
}

// tableNames are how an engine names the tables of a directory. Their files are those of the newest
// commits: after more commits the views have to be made again.
func tableNames(ctx context.Context, p *Place, of string) (name, intervals string, err error) {
	function := tableFunctions[of]
	namespace := cmp.Or(p.Namespace, defaultNamespace)
	if function == "" || p.Catalog != "" {
		return "", "", fmt.Errorf("say with --table how %s names the table, as lake.%s.%s", of, namespace, changes.name)
	}
	c, closeCatalog, err := p.open(ctx)
	if err != nil {
		return "", "", err
	}
	defer closeCatalog()
	var names []string
	for _, s := range []spec{changes, coverageSpec} {
		l, err := openLake(ctx, c, namespace, s)
		if err != nil {
			return "", "", err
		}
		dir := strings.TrimPrefix(l.Location(), "file://")
		file := strings.TrimPrefix(l.MetadataLocation(), "file://")
		quoted := strings.NewReplacer("'", "''").Replace
		names = append(names, fmt.Sprintf(function, quoted(dir), quoted(strings.TrimPrefix(file, dir+"/"))))
	}
	return names[0], names[1], nil
}
