package testkit

import (
	"fmt"
	"strings"
)

// Wide is a ConfigMap as a watch has it whose data has that many members. The members of two rounds
// have no name in common. fields adds the managedFields entry that names each of them.
func Wide(members, round int, fields bool) []byte {
	return wide("ConfigMap", `""`, members, round, fields)
}

// WideSecret is a Secret of the same form.
func WideSecret(members, round int) []byte {
	return wide("Secret", `"YQ=="`, members, round, true)
}

func wide(kind, value string, members, round int, fields bool) []byte {
	var out strings.Builder
	fmt.Fprintf(&out, `{"kind":%q,"apiVersion":"v1","metadata":{"name":"wide","namespace":"evil",`+
		`"uid":"b5a5b30e-6d8e-4f7e-9d0c-0d7b8a1f2c11","resourceVersion":"%d"`, kind, 1000+round)
	if fields {
		out.WriteString(`,"managedFields":[{"manager":"evil","operation":"Update","apiVersion":"v1",` +
			`"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{}`)
		for i := range members {
			fmt.Fprintf(&out, `,"f:k%d-%d":{}`, round, i)
		}
		out.WriteString(`}}}]`)
	}
	out.WriteString(`},"data":{`)
	for i := range members {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, `"k%d-%d":%s`, round, i, value)
	}
	out.WriteString(`}}`)
	return []byte(out.String())
}
