package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

func httpSink(section string) string { return "sinks: [{name: s, http: {" + section + "}}]" }

func TestHTTPMessages(t *testing.T) {
	t.Setenv("K_SINK", "")
	for section, want := range map[string]string{
		"":                                      "http.url: required, unless the variable K_SINK names the endpoint",
		"url: ftp://a":                          "http.url: want a URL such as https://",
		"url: 'http://u:hunter2@'":              "http.url: want a URL such as https://",
		"url: 'http://a/#x'":                    "http.url: want a URL such as https://",
		"url: http://a, deadLetterURL: /dead":   "http.deadLetterURL: want a URL such as https://",
		"url: http://a, headers: {X-Key: k}":    "http.headers.X-Key: want a name in lower case",
		"url: http://a, headers: {'x key': k}":  "http.headers.x key: is no name of a header",
		"url: http://a, headers: {ce-id: k}":    "http.headers.ce-id: is set by the bridge",
		"url: http://a, headers: {host: k}":     "http.headers.host: is set by the bridge",
		`url: http://a, headers: {x: "a\r\nb"}`: "http.headers.x: a header holds printable ASCII only",
		"url: http://a, tokenFile: /t, headers: {authorization: k}": "http.headers.authorization: cannot be combined with tokenFile",
		"url: 'http://u:p@a', tokenFile: /t":                        "http.url: cannot be combined with tokenFile",
		"url: http://a, timeout: 26s":                               "http.timeout: want above 0 and at most 25s, got 26s",
		"url: http://a, timeout: 0s":                                "http.timeout: want above 0",
		"url: http://a, concurrency: 0":                             "http.concurrency: want 1 to 1000, got 0",
		"url: http://a, tls: {}":                                    "http.tls: has no effect without a URL of https://",
		"url: https://a, tls: {certFile: c}":                        "http.tls.keyFile: required beside certFile",
		"url: https://a, tokenFile: /proc/self/environ":             "http.tokenFile: a file of /proc is not for brokers",
	} {
		_, err := load(t, httpSink(section))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s", section, err, want)
		}
	}
}

func TestHTTPSink(t *testing.T) {
	t.Run("the endpoint is Knative's where none is given", func(t *testing.T) {
		t.Setenv("K_SINK", "http://broker.knative/ns")
		c, err := load(t, "sinks: [{name: s, http: {}}, {name: t, http: {url: http://a}}]")
		if err != nil || c.Sinks[0].HTTP.URL != "http://broker.knative/ns" || c.Sinks[1].HTTP.URL != "http://a" {
			t.Errorf("%v\n%s", err, c)
		}
		t.Setenv("K_SINK", "nonsense")
		if _, err = load(t, httpSink("")); err == nil || !strings.Contains(err.Error(), "K_SINK: sinks[0].http.url: want a URL") {
			t.Errorf("%v", err)
		}
	})
	t.Run("what is secret is not printed", func(t *testing.T) {
		t.Setenv("KEY", "hunter2")
		c, err := load(t, httpSink(`url: "http://u:hunter3@a", headers: {x-key: "${KEY}", x-other: hunter4}`))
		if err != nil {
			t.Fatal(err)
		}
		text := c.String() + fmt.Sprintf("%+v %#v", c.Sinks[0].HTTP, c.Sinks[0].HTTP)
		if strings.Contains(text, "hunter") || !strings.Contains(text, "x-key: '${KEY}'") {
			t.Errorf("printed:\n%s", text)
		}
		if got := c.Sinks[0].HTTP.Headers["x-key"]; string(got) != "hunter2" {
			t.Errorf("x-key is %q", string(got))
		}
	})
	t.Run("what is sent in plain text is warned of", func(t *testing.T) {
		for section, want := range map[string]string{
			"url: http://a, headers: {x: y}":                             "headers: is sent in plain text",
			"url: http://a, tokenFile: /t":                               "tokenFile: is sent in plain text",
			"url: 'http://u:p@a'":                                        "url: is sent in plain text",
			"url: https://a, deadLetterURL: 'http://u:p@b'":              "deadLetterURL: is sent in plain text",
			"url: https://a, tls: {insecureSkipVerify: true}":            "accepts any certificate",
			"url: http://a":                                              "",
			"url: 'http://u:p@127.0.0.1:8080'":                           "",
			"url: https://a, tokenFile: /t, deadLetterURL: 'http://b:1'": "",
		} {
			c, err := load(t, httpSink(section))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(c.Warnings()); want == "" && got != "[]" || !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %q", section, got, want)
			}
		}
	})
	t.Run("a reload leads to no other place", func(t *testing.T) {
		is := httpSink("url: https://a/x, deadLetterURL: https://b")
		for next, want := range map[string]string{
			"url: 'https://a:443/x?q=1'":                              "",
			"url: https://a/y":                                        "a:443/y, where no sink sends now",
			"url: https://b":                                          "",
			"url: http://a:443/x":                                     "by plain text, where TLS is used now",
			"url: https://a/x, tls: {insecureSkipVerify: true}":       "by TLS that takes any certificate",
			"url: https://a/x, deadLetterURL: https://evil.example":   "evil.example:443, where no sink sends now",
			"url: https://a/x, deadLetterURL: https://b, timeout: 3s": "",
			"url: https://a/x, deadLetterURL: 'https://user:pass@b'":  "",
		} {
			before, err := load(t, is)
			if err != nil {
				t.Fatal(err)
			}
			after, err := load(t, httpSink(next))
			if err != nil {
				t.Fatal(err)
			}
			err = config.NewGuard(before).Check(after)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", next, err, want)
			}
		}
	})
}
