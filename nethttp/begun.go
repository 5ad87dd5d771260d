package httplimit

import (
	"net/http"
	"reflect"
)

// hasBegun reports whether the header of a response has been written. net/http does not export this, but
// all of its writers store it in a field of the same name. hasBegun looks for the field in w and in the
// writers that w wraps. If no writer has the field, as perhaps in a later version of net/http, hasBegun
// returns false.
func hasBegun(w http.ResponseWriter) bool {
	for depth := 0; w != nil && depth < maxWriters; depth++ {
		fields := structOf(reflect.ValueOf(w))
		if isTrue(fields, "wroteHeader") || isTrue(structOf(fieldOf(fields, "rws")), "wroteHeader") { // rws is in the writer of HTTP/2
			return true
		}
		w = innerWriter(w, fields)
	}
	return false
}

// maxWriters bounds how many nested writers are looked at: a writer could be inside itself.
const maxWriters = 100

// innerWriter returns the writer that w writes to, or nil if it is not known.
func innerWriter(w http.ResponseWriter, fields reflect.Value) http.ResponseWriter {
	if wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		return wrapper.Unwrap()
	}
	if embedded := fieldOf(fields, "ResponseWriter"); embedded.IsValid() && embedded.CanInterface() {
		inner, _ := embedded.Interface().(http.ResponseWriter)
		return inner
	}
	return nil
}

// structOf returns the struct that v is or points to, or the zero Value.
func structOf(v reflect.Value) reflect.Value {
	if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v
}

// fieldOf returns the field called name that belongs to a struct itself, or the zero Value.
func fieldOf(structure reflect.Value, name string) reflect.Value {
	if !structure.IsValid() {
		return reflect.Value{}
	}
	field, ok := structure.Type().FieldByName(name)
	if !ok || len(field.Index) != 1 { // or it is in an embedded struct, which may be nil
		return reflect.Value{}
	}
	return structure.Field(field.Index[0])
}

// isTrue reports whether a struct has a field called name that is true.
func isTrue(structure reflect.Value, name string) bool {
	field := fieldOf(structure, name)
	return field.Kind() == reflect.Bool && field.Bool()
}
