package admin

import (
	"bytes"
	"embed"
	"net/http"
	"strings"
	"time"
)

// The page has no build chain: these are its files.
//
//go:embed page/page.html page/page.css page/page.js page/history.js
var pageFiles embed.FS

// contentPolicy lets the page load what the bridge serves, and nothing else: no inline script or
// style, no other host, no frame around it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src " +
	"'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// root is the status page for browsers, and the list of paths for everybody else.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.index(w, r)
		return
	}
	pageFile("page.html", "text/html; charset=utf-8")(w, r)
}

// pageFile serves one of the page's files. It is in the binary, so a browser asks again each time:
// that costs little, and an old script never meets a new bridge.
func pageFile(name, contentType string) http.HandlerFunc {
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic("admin: the page has no " + name) // they are embedded
	}
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	}
}
