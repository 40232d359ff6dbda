package resource

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// looksSecret reports whether a value looks like a secret, by itself or by its name: that of an
// environment variable or of a flag. The kinds of secrets are those of the public rule lists of
// gitleaks and of GitHub's secret scanning. A fingerprint is none, so redacting twice is as good as
// once.
func looksSecret(name, value string) bool {
	if harmlessText.MatchString(value) {
		return false
	}
	if hasShape(value) {
		return true
	}
	switch ratedName(name) {
	case secretName:
		return true
	case suspectName:
		return opaque(value)
	default:
		return false
	}
}

// nameRating says what a name makes of its value.
type nameRating uint8

const (
	plainName   nameRating = iota
	suspectName            // a secret where the value is opaque: SORT_KEY, STRIPE_KEY
	secretName             // a secret, whatever the value
)

// ratedName rates a name by its words: API_KEY, apiKey, api-key and --api-key have the same ones.
func ratedName(name string) nameRating {
	words := wordsOf(name)
	if len(words) == 0 || slices.Contains(aboutSecrets, words[len(words)-1]) && !slices.Contains(words, "webhook") {
		return plainName
	}
	rating := plainName
	for i, word := range words {
		ends := func(with string) bool { return strings.HasSuffix(word, with) }
		switch {
		case slices.ContainsFunc(secretSuffixes, ends), slices.Contains(secretWords, word),
			word == "key" && i > 0 && slices.Contains(keyOwners, words[i-1]):
			return secretName
		case slices.Contains(suspectWords, word), ends("key"), strings.HasPrefix(word, "auth"),
			strings.HasPrefix(word, "session"):
			rating = suspectName
		}
	}
	return rating
}

// wordsOf splits a name at punctuation and where an upper-case letter follows a lower-case one, and
// returns the words in lower case, without a number or a plural at their end: TOKEN2, PASSWORDS.
func wordsOf(name string) []string {
	var spaced strings.Builder
	var before rune
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(unicode.ToLower(r))
		before = r
	}
	words := strings.FieldsFunc(spaced.String(), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, word := range words {
		word = strings.TrimRight(word, "0123456789")
		const abbreviation = 3
		if len(word) > abbreviation && !strings.HasSuffix(word, "ss") {
			word = strings.TrimSuffix(word, "s")
		}
		words[i] = word
	}
	return slices.DeleteFunc(words, func(word string) bool { return word == "" })
}

var (
	// secretSuffixes end words of names whose values are secrets, compounds too: PGPASSWORD.
	secretSuffixes = []string{
		"password", "passwd", "passphrase", "passwort", "secret", "token", "apikey", "accesskey",
		"secretkey", "privatekey", "credential", "webhook", "cookie", "bearer", "jwt",
	}
	secretWords = []string{"pass", "pwd", "pw", "pat", "dsn", "cred", "otp", "totp", "mnemonic", "htpasswd"}
	// suspectWords are in names of secrets, and in many that are none. So are words that begin with
	// "auth" or "session", or end with "key".
	suspectWords = []string{
		"conn", "connection", "connstr", "connectionstring", "cert", "pem", "pfx", "salt", "pepper",
		"seed", "sas", "sig", "signature", "hmac", "license", "licence", "private", "encryption", "pin",
	}
	// keyOwners are words before "key" in names of secrets.
	keyOwners = []string{
		"access", "account", "admin", "api", "app", "application", "auth", "client", "consumer",
		"crypt", "decryption", "deploy", "encryption", "ingest", "ingestion", "integration", "license",
		"licence", "master", "private", "root", "secret", "service", "shared", "signing", "ssh",
		"storage", "subscription", "write",
	}
	// aboutSecrets are last words of names that say something about a secret and do not hold it.
	aboutSecrets = []string{
		"address", "age", "alg", "algorithm", "arn", "attempt", "audience", "backend", "bit", "bucket", "cache",
		"class", "claim", "column", "context", "count", "dir", "directory", "disabled", "domain",
		"duration", "enable", "enabled", "endpoint", "env", "expiration", "expire", "expiry", "field", "file",
		"filename", "format", "header", "host", "hostname", "id", "interval", "issuer", "kind", "label", "len",
		"length", "lifetime", "limit", "location", "max", "method", "min", "mode", "mount", "name",
		"namespace", "optional", "path", "period", "policy", "port", "prefix", "provider", "realm", "ref", "region",
		"registry", "required", "retrie", "role", "rotation", "round", "scope", "size", "source", "store", "strategy",
		"suffix", "timeout", "ttl", "type", "uri", "url", "user", "username", "validity", "version",
	}
)

// harmlessText matches values that are no secret, whatever their name: nothing, a switch, a
// reference to another variable, a fingerprint.
var harmlessText = oneOf(
	`(?i:|true|false|yes|no|on|off|none|null|nil|enabled|disabled|required|optional)`,
	`\$\(\w+\)|\$\{\w+\}`,
	`redacted:[0-9a-f]{8}:[0-9a-f]{16}`,
)

// oneOf matches texts that match one of several patterns as a whole.
func oneOf(patterns ...string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + strings.Join(patterns, "|") + `)$`)
}

// hasShape reports whether a value shows itself that it is a secret.
func hasShape(value string) bool {
	const shortest = 12
	if len(value) < shortest {
		return false
	}
	return slices.ContainsFunc(secretShapes, func(s shape) bool {
		return strings.Contains(value, s.literal) && s.MatchString(value)
	}) || slices.ContainsFunc(tokenPrefixes, func(prefix string) bool {
		return hasToken(value, prefix)
	})
}

// shape is what values of one kind of secret look like.
type shape struct {
	literal string // is in each of them, and is found in a hundredth of the time of the pattern
	*regexp.Regexp
}

var secretShapes = []shape{
	{"@", regexp.MustCompile(`://[^/\s]*:[^/\s]+@`)}, // a URL with a password
	{"PRIVATE KEY", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`)},
	{"=", regexp.MustCompile(`(?i)(?:password|pwd|(?:account|sharedaccess|api_?)key|secret|token)` +
		`\s*=\s*["']?[^\s;&$"']`)}, // a setting, in a text of many
	{"?", regexp.MustCompile(`[?&](?i:sig|signature|x-amz-signature|token|key|code)=[^&\s]{8,}`)},
	{" ", regexp.MustCompile(`^(?i:bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}`)},
	{"eyJ", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.`)}, // a JSON web token
	{"hooks.slack.com/", regexp.MustCompile(`hooks\.slack\.com/(?:services|workflows|triggers)/`)},
	{"/api/webhooks/", regexp.MustCompile(`discord(?:app)?\.com/api/webhooks/`)},
	{"/webhookb2/", regexp.MustCompile(`\.webhook\.office\.com/webhookb2/`)},
	{"/hooks/", regexp.MustCompile(`hooks\.zapier\.com/hooks/`)},
	{"A", regexp.MustCompile(`\b(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b`)},               // AWS
	{"-us", regexp.MustCompile(`\b[a-f0-9]{32}-us\d{1,2}\b`)},                                      // Mailchimp
	{":AA", regexp.MustCompile(`\b\d{8,10}:AA[A-Za-z0-9_-]{32,}`)},                                 // Telegram
	{"Q~", regexp.MustCompile(`[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}`)},                     // Microsoft Entra
	{".atlasv1.", regexp.MustCompile(`[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}`)},             // Terraform
	{".", regexp.MustCompile(`\b[MNO][A-Za-z0-9_-]{23,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}`)}, // Discord
	{".", regexp.MustCompile(`^[0-9a-z]{6}\.(?:[0-9]+[a-z]|[a-z]+[0-9])[0-9a-z]{0,14}$`)},          // kubeadm
	{"S", regexp.MustCompile(`\bS[UAO][A-Z2-7]{56}\b`)},                                            // NATS
}

// tokenPrefixes begin the tokens of issuers that give theirs one.
var tokenPrefixes = strings.Fields(`
	ghp_ gho_ ghu_ ghs_ ghr_ github_pat_
	glpat- glptt- gldt- glrt- glsoat- glcbt- glft- glimt- glagent- gloas- glffct- GR1348941 ATBB ATATT3 ATCTT3
	xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- whsec_ sk_live_ sk_test_ rk_live_ rk_test_ pk_live_
	AIza GOCSPX- ya29. sk- hf_ api_org_ gsk_ xai- pplx- r8_ nvapi-
	npm_ pypi- rubygems_ oy2 dckr_pat_ dckr_oat_ CLOJARS_ AKCp cmVmdGtu
	dop_v1_ doo_v1_ dor_v1_ hvs. hvb. hvr. pul- tfp_ LTAI AKID SG. SK key- xkeysib-
	shpat_ shpca_ shppa_ shpss_ sq0atp- sq0csp- sq0idp- EAAA EAAC EZAK EZTK shippo_live_ duffel_live_ FLWSECK-
	NRAK- NRII- glsa_ glc_ dt0c01. sntrys_ sntryu_ phc_ phx_ dapi lin_api_ lin_oauth_
	PMAK- fio-u- figd_ ntn_ secret_ dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.
	pscale_tkn_ pscale_oauth_ pscale_pw_ sbp_ sb_secret_ fo1_ fm1_ fm2_ HRKU- rnd_ vcp_ vci_ vca_ vcr_ vck_ nfp_
	AGE-SECRET-KEY-1 ops_ ory_at_ ory_rt_ ory_ac_ tskey- `)

// hasToken reports whether a value has a token with a prefix: at the beginning of a word, and
// followed by at least 20 characters, of which one is a digit.
func hasToken(value, prefix string) bool {
	for {
		at := strings.Index(value, prefix)
		if at < 0 {
			return false
		}
		begins := at == 0 || !isTokenByte(value[at-1])
		value = value[at+len(prefix):]
		length, digit := 0, false
		for length < len(value) && isTokenByte(value[length]) {
			digit = digit || value[length] >= '0' && value[length] <= '9'
			length++
		}
		const least = 20
		if begins && digit && length >= least {
			return true
		}
	}
}

func isTokenByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b == '_' || b == '-'
}

// secretArgument returns where in an argument of a command a secret begins, -1 for none: at 0, or
// after the name in --name=value. before is the argument before it, which may be its name.
func secretArgument(before, argument string) int {
	if flag := flagWithValue.FindStringSubmatchIndex(argument); flag != nil {
		if looksSecret(argument[:flag[1]], argument[flag[1]:]) {
			return flag[1]
		}
		return -1
	}
	if !strings.HasPrefix(before, "-") || strings.HasPrefix(argument, "-") || strings.Contains(before, "=") {
		before = ""
	}
	if looksSecret(before, argument) {
		return 0
	}
	return -1
}

// flagWithValue matches --name= and NAME=.
var flagWithValue = regexp.MustCompile(`^-{0,2}[A-Za-z][\w.-]*=`)

// opaque reports whether a value looks random: one word of eight characters or more, in which
// letters are mixed with digits or both cases with each other, and neither a path, an address, a
// name of several words nor a number with its unit.
func opaque(value string) bool {
	const enough = 8
	isProse := strings.ContainsAny(value, " \t\n") && !strings.Contains(value, "=")
	if len(value) < enough || isProse || plainText.MatchString(value) {
		return false
	}
	var lower, upper, digit bool
	for _, r := range value {
		lower, upper, digit = lower || unicode.IsLower(r), upper || unicode.IsUpper(r), digit || unicode.IsDigit(r)
	}
	kinds := 0
	for _, has := range []bool{lower, upper, digit} {
		if has {
			kinds++
		}
	}
	const long = 32 // letters of one case: a passphrase
	return kinds > 1 || len(value) >= long && !strings.ContainsAny(value, "./:")
}

// plainText matches values that people write: paths, addresses, numbers with units, names of
// images, classes, hosts and keys, in which words are separated.
var plainText = oneOf(
	`\.{0,2}/[\w@.+-]+(?:/[\w@.+-]*)*`,       // /etc/tls/tls.key
	`[a-z][a-z0-9+.-]*://[^\s?]*`,            // https://host/path
	`[\w-]+(?:\.[\w-]+)*:\d{1,5}(?:[/,].*)?`, // host:80, host:81
	`(?:[a-z0-9-]+\.)+[a-z]{2,}`,             // host.example.com
	`-?\d+(?:[.,:]\d+)*\s?[A-Za-z%]{0,3}`,    // 500Mi
	`[a-z]+(?:[-_.:/][a-z]*\d{0,3})*`,        // app.kubernetes.io/name
	`[A-Z]+(?:[-_.:/][A-Z]*\d{0,3})*`,        // READ_WRITE
	`[A-Z]?[a-z]+(?:[A-Z][a-z]+){1,3}`,       // RoundRobin
	`[a-z]+\d{0,3}(?:[-_][a-z0-9]{1,6})+`,    // sha256-rsa, web-7f9c
)
