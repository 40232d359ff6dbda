package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/kubebridge/bridge/internal/settings"
)

func (k *Kafka) validate(ps *settings.Report, path string) {
	if k.MaxTopics < 1 {
		ps.Add(path+".maxTopics", "want at least 1, got %d", k.MaxTopics)
	}
	if len(k.Brokers) == 0 && !ps.Has(path+".brokers") {
		ps.Add(path+".brokers", "required: addresses such as [kafka-0.kafka:9092]")
	}
	for i, b := range k.Brokers {
		validateHostPort(ps, fmt.Sprintf("%s.brokers[%d]", path, i), b)
	}
	validateTopic(ps, path+".topic", k.Topic)
	if k.DeadLetterTopic != "" {
		validateTopic(ps, path+".deadLetterTopic", k.DeadLetterTopic)
	}
	if k.CreateTopics != nil {
		requireLimit(ps, path+".topic", path+".maxTopics", k.Topic, "a topic")
		requireLimit(ps, path+".deadLetterTopic", path+".maxTopics", k.DeadLetterTopic, "a topic")
	}
	if k.SASL != nil {
		k.SASL.validate(ps, path+".sasl")
	}
	if k.SASL != nil && k.SASL.Mechanism == mskIAM && k.TLS == nil {
		ps.Add(path+".tls", "required for AWS_MSK_IAM: tls: {}")
	}
	k.TLS.validate(ps, path+".tls")
	k.validateView(ps, path)
}

// validateTopic refuses a topic that Kafka would, and one that an object would change in its life.
func validateTopic(ps *settings.Report, path, template string) {
	validateTemplate(ps, path, template)
	for _, field := range []string{"{op}", "{type}"} {
		if strings.Contains(template, field) {
			ps.Add(path, "%s changes from event to event: an object's events would lie in several topics, "+
				"without order; use it in a consumer's filter", field)
		}
	}
	for i, c := range outsideFields(template) {
		if c != '.' && c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') &&
			(c < 'A' || c > 'Z') {
			ps.Add(path, "a topic holds letters, digits and . _ - only, got %q at %d of %q", c, i, template)
			return
		}
	}
}

// outsideFields is a template with its fields blanked out by a letter, so that positions stay.
func outsideFields(template string) string {
	out := []rune(template)
	inside := false
	for i, c := range out {
		if c == '{' {
			inside = true
		}
		if inside {
			out[i] = 'x'
		}
		if c == '}' {
			inside = false
		}
	}
	return string(out)
}

// mskIAM is the mechanism of Amazon MSK, by the name that Kafka's clients have for it.
const mskIAM = "AWS_MSK_IAM"

func (s *SASL) validate(ps *settings.Report, path string) {
	validateAtMostOne(ps, path, setting{"password", s.Password != ""},
		setting{"passwordFile", s.PasswordFile != ""})
	hasPassword := s.Password != "" || s.PasswordFile != ""
	switch s.Mechanism {
	case "": // reported as required already; what else is required depends on it
		return
	case "OAUTHBEARER":
		switch {
		case s.TokenFile == "" && s.OAuth == nil:
			ps.Add(path+".tokenFile", "required for OAUTHBEARER: tokenFile or oauth")
		case s.TokenFile != "" && s.OAuth != nil:
			ps.Add(path+".oauth", "cannot be combined with tokenFile: keep one of tokenFile, oauth")
		}
		s.OAuth.validate(ps, path+".oauth")
		for i, extension := range s.Extensions {
			if !saslExtension.MatchString(extension) || strings.HasPrefix(extension, "auth=") {
				ps.Add(fmt.Sprintf("%s.extensions[%d]", path, i),
					"want name=value, such as logicalCluster=lkc-abc")
			}
		}
		s.validateUnused(ps, path, append(s.userKeys(), setting{"aws", s.AWS != nil}))
		return
	case mskIAM:
		s.AWS.validate(ps, path+".aws")
		s.validateUnused(ps, path, append(s.userKeys(), s.bearerKeys()...))
		return
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	default: // reported; what it requires is not known
		return
	}
	if s.Username == "" && !ps.Has(path+".username") {
		ps.Add(path+".username", "required for %s", s.Mechanism)
	}
	if !hasPassword && !ps.Has(path+".password") {
		ps.Add(path+".password", "required for %s: password or passwordFile", s.Mechanism)
	}
	s.validateUnused(ps, path, append(s.bearerKeys(), setting{"aws", s.AWS != nil}))
}

func (s *SASL) userKeys() []setting {
	return []setting{
		{"username", s.Username != ""},
		{"password", s.Password != ""},
		{"passwordFile", s.PasswordFile != ""},
	}
}

func (s *SASL) bearerKeys() []setting {
	return []setting{
		{"tokenFile", s.TokenFile != ""},
		{"oauth", s.OAuth != nil},
		{"extensions", len(s.Extensions) > 0},
	}
}

func (s *SASL) validateUnused(ps *settings.Report, path string, others []setting) {
	for _, key := range givenKeys(others...) {
		ps.Add(settings.Join(path, key), "has no effect with %s", s.Mechanism)
	}
}

var (
	awsRegion = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d+$`)
	awsRole   = regexp.MustCompile(`^arn:aws[a-z-]*:iam::\d{12}:role/\S+$`)
)

func (a *AWS) validate(ps *settings.Report, path string) {
	if a == nil {
		return
	}
	// A region becomes part of the address of AWS's service.
	if a.Region != "" && !awsRegion.MatchString(a.Region) {
		ps.Add(path+".region", "want a region such as eu-central-1, got %q", a.Region)
	}
	if a.RoleARN != "" && !awsRole.MatchString(a.RoleARN) {
		ps.Add(path+".roleARN", "want the ARN of a role such as "+
			"arn:aws:iam::123456789012:role/bridge, got %q", a.RoleARN)
	}
}

// saslExtension is a name and a printable value, as in RFC 7628.
var saslExtension = regexp.MustCompile(`^[A-Za-z]+=[ -~]+$`)

func (o *OAuth) validate(ps *settings.Report, path string) {
	if o == nil {
		return
	}
	u, err := url.Parse(o.TokenURL)
	switch {
	case o.TokenURL == "":
		ps.Add(path+".tokenURL", "required")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil:
		// Without the value: it may hold a password.
		ps.Add(path+".tokenURL", "want a URL such as https://idp.example.com/oauth/token, without a user")
	}
	if o.ClientID == "" {
		ps.Add(path+".clientID", "required")
	}
	validateAtMostOne(ps, path, setting{"clientSecret", o.ClientSecret != ""},
		setting{"clientSecretFile", o.ClientSecretFile != ""})
	if o.ClientSecret == "" && o.ClientSecretFile == "" && !ps.Has(path+".clientSecret") {
		ps.Add(path+".clientSecret", "required: clientSecret or clientSecretFile")
	}
}
