//go:build ignore

// 2xx: done. 400: never again, a dead letter. Anything else, or no answer: again, later.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"
)

// object has what is read of a Deployment or a Pod.
type object struct {
	Spec struct {
		Template struct {
			Spec struct{ Containers []struct{ Image string } }
		}
	}
	Status struct {
		ContainerStatuses []struct{ RestartCount int }
	}
}

func (o object) values() (all []string) {
	for _, c := range o.Spec.Template.Spec.Containers {
		all = append(all, c.Image)
	}
	for _, c := range o.Status.ContainerStatuses {
		all = append(all, fmt.Sprint(c.RestartCount))
	}
	return all
}

func handle(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("ce-type"), "dev.kubebridge.resource.") {
		return // about the stream: a gap, or a list that is complete
	}
	var change struct{ Object, Old object }
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h := r.Header.Get
	what := fmt.Sprintln(h("ce-name"), change.Old.values(), "->", change.Object.values())
	id := h("ce-source") + " " + h("ce-informer") + " " + h("ce-id")
	if err := once("done", id, what); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func main() {
	log.Fatal(http.ListenAndServe("127.0.0.1:8000", http.HandlerFunc(handle)))
}
