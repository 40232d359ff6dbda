package serve

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// form is how a client wants objects.
type form int

const (
	asObject form = iota
	asTable
	asMetadata
	asMetadataList
)

// formOf reads Accept. The first kind that is known wins, as with an API server; ok is false where
// there is none.
func formOf(r *http.Request) (f form, ok bool) {
	header := cmp.Or(r.Header.Get("Accept"), "*/*")
	for accepted := range strings.SplitSeq(header, ",") {
		media, parameters, err := mime.ParseMediaType(accepted)
		isJSON := slices.Contains([]string{"application/json", "*/*"}, media)
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
		case "PartialObjectMetadata":
			return asMetadata, true
		case "PartialObjectMetadataList":
			return asMetadataList, true
		}
	}
	return asObject, false
}

// checkTable refuses parameters of a table that there are not.
func (q *request) checkTable() error {
	var o metav1.TableOptions
	if form, _ := formOf(q.r); form != asTable {
		return nil
	}
	o.IncludeObject = metav1.IncludeObjectPolicy(q.r.URL.Query().Get("includeObject"))
	if problems := metavalidation.ValidateTableOptions(&o); len(problems) > 0 {
		return apierrors.NewBadRequest("Unable to convert to Table as requested: " + problems[0].Error())
	}
	return nil
}

// notAcceptable refuses a request for a form that no object is kept in.
func (q *request) notAcceptable() {
	q.refuse(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media "+
		"types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, "+
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
}
