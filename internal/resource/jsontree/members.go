package jsontree

// Member is one member of an object.
type Member struct {
	Name  string
	Value Value
}

// Members are members of an object, in their order. They are not safe for concurrent use.
type Members struct {
	List []Member
	next int            // behind the last one that was found
	of   map[string]int // place in List by name; nil before it is needed
}

// fewMembers are found as fast without a map.
const fewMembers = 16

// Members collects the members of an object; none of any other value.
func (v Value) Members() *Members {
	m := &Members{}
	if v.IsObject() {
		for w := v.Walk(); w.Next(); {
			m.List = append(m.List, Member{w.Name(), w.Value()})
		}
	}
	return m
}

// Find is the place of a member in List, -1 when there is none. Members are found fastest in their
// order, which two versions of an object mostly share.
func (m *Members) Find(name string) int {
	if m.next >= len(m.List) || m.List[m.next].Name != name {
		found := m.search(name)
		if found < 0 {
			return -1
		}
		m.next = found
	}
	m.next++
	return m.next - 1
}

func (m *Members) search(name string) int {
	if len(m.List) <= fewMembers {
		for i := range m.List {
			if m.List[i].Name == name {
				return i
			}
		}
		return -1
	}
	if m.of == nil {
		m.of = make(map[string]int, len(m.List))
		for i := range m.List {
			m.of[m.List[i].Name] = i
		}
	}
	if i, ok := m.of[name]; ok {
		return i
	}
	return -1
}
