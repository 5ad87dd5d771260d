package core

import "container/heap"

// A dueHeap has the entries of a shard, the soonest due first.
type dueHeap []*entry

func (h *dueHeap) push(e *entry)   { heap.Push((*dueOrder)(h), e) }
func (h *dueHeap) remove(e *entry) { heap.Remove((*dueOrder)(h), int(e.index)) }
func (h *dueHeap) fix(e *entry)    { heap.Fix((*dueOrder)(h), int(e.index)) }

// dueOrder is a dueHeap as container/heap wants it.
type dueOrder []*entry

func (o dueOrder) Len() int           { return len(o) }
func (o dueOrder) Less(i, j int) bool { return o[i].due < o[j].due }

func (o dueOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = int32(i), int32(j)
}

func (o *dueOrder) Push(x any) {
	e, _ := x.(*entry)
	e.index = int32(len(*o))
	*o = append(*o, e)
}

func (o *dueOrder) Pop() any {
	last := len(*o) - 1
	e := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return e
}

// An entryList has entries in the order in which they were pushed. It is woven
// through the entries themselves, and so allocates nothing.
type entryList struct{ front, back *entry }

func (l *entryList) pushBack(e *entry) {
	e.prev, e.next = l.back, nil
	if l.back == nil {
		l.front = e
	} else {
		l.back.next = e
	}
	l.back = e
}

func (l *entryList) remove(e *entry) {
	if e.prev == nil {
		l.front = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.back = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}
