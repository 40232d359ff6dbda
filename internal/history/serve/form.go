package serve

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// form is how a client wants objects.
type form int

const (
	asObject form = iota
	asTable
	asMetadata
)

// formOf reads Accept. The first kind that is known wins, as with an API server; ok is false where
// there is none.
func formOf(r *http.Request) (f form, ok bool) {
	header := cmp.Or(r.Header.Get("Accept"), "*/*")
	for accepted := range strings.SplitSeq(header, ",") {
		media, parameters, err := mime.ParseMediaType(accepted)
		isJSON := slices.Contains([]string{"application/json", "application/*", "*/*"}, media)
		if err != nil || !isJSON || parameters["as"] != "" && parameters["g"] != "meta.k8s.io" {
			continue
		}
		switch parameters["as"] {
		case "":
			return asObject, true
		case "Table":
			if parameters["v"] == "v1" {
				return asTable, true
			}
		case "PartialObjectMetadata", "PartialObjectMetadataList":
			return asMetadata, true
		}
	}
	return asObject, false
}

// notAcceptable refuses a request for a form that no object is kept in.
func (q *request) notAcceptable() {
	q.refuse(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media "+
		"types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, "+
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
}
