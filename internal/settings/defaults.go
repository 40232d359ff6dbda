package settings

import (
	"fmt"
	"reflect"
)

// Fill sets the keys of a section that were not given to the defaults of their tags. With
// inLists it also looks into the items of lists.
func Fill(section reflect.Value, path string, given Origins, inLists bool) {
	for _, f := range Fields(section.Type()) {
		v, at := section.Field(f.Index), Join(path, f.Key)
		switch {
		case f.IsSection:
			if v.Kind() == reflect.Pointer {
				if v = v.Elem(); !v.IsValid() {
					continue // a section that is left out has no defaults: it is off
				}
			}
			Fill(v, at, given, inLists)
		case f.IsList():
			for i := 0; inLists && i < v.Len(); i++ {
				Fill(v.Index(i), fmt.Sprintf("%s[%d]", at, i), given, inLists)
			}
		case f.HasDefault:
			// A key that was given keeps its value even where that is zero: "resync: 0s" and
			// "address: ''" mean something.
			if _, ok := given[at]; !ok && v.IsZero() {
				v.Set(reflect.ValueOf(mustParse(&f)))
			}
		}
	}
}

// mustParse reads the default of a tag, which a test has read before.
func mustParse(f *Field) any {
	v, err := Parse(f.Type, f.Default)
	if err != nil {
		panic(fmt.Sprintf("settings: default of %s: %v", f.Key, err))
	}
	return v
}
