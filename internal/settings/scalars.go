package settings

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Size is a number of bytes. In YAML it is a number with a unit: 64MiB, 10GiB, 500kB; a bare number
// is bytes.
type Size int64

// units of a Size, larger ones and longer names first, as String and ParseSize look for them.
var units = []struct {
	name  string
	bytes float64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"KB", 1e3},
	{"Ti", 1 << 40},
	{"Gi", 1 << 30},
	{"Mi", 1 << 20},
	{"Ki", 1 << 10},
	{"B", 1},
}

var errSize = errors.New("want a size such as 64MiB, 10GiB or 500kB")

// ParseSize reads a size. Its errors don't repeat the text.
func ParseSize(text string) (Size, error) {
	number, factor := strings.TrimSpace(text), 1.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(n), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(f) || f*factor >= math.MaxInt64 || f*factor <= math.MinInt64 {
		return 0, errSize
	}
	return Size(f * factor), nil
}

// String is the size in the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range units[:4] {
		if s != 0 && s%Size(u.bytes) == 0 {
			return fmt.Sprintf("%d%s", s/Size(u.bytes), u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalYAML writes the size as String does.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }

// Masked stands for a secret wherever one is printed.
const Masked = "********"

// Secret is a password or a token. However it is printed, logged or encoded, it shows as Masked;
// string(s) is the value.
type Secret string

// String is Masked, or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Masked
}

// GoString is what %#v prints.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText masks the secret in JSON and other encodings.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML masks the secret in YAML.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue masks the secret in slog attributes.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// URL is an address that may hold credentials. Printed, they show as Masked; string(u) is the
// value.
type URL string

// String is the URL with Masked in place of the user, of values of the query, of the fragment, and
// of what follows the name of a webhook in the path, which is the secret of most chats.
func (u URL) String() string {
	text, scheme := webhook.ReplaceAllString(string(u), "${1}"+Masked), ""
	// Up to the last @: a password that is not escaped may hold any other character.
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		if end := strings.Index(text[:at], "://"); end >= 0 {
			scheme = text[:end+len("://")]
		}
		scheme, text = scheme+Masked+"@", text[at+1:]
	}
	text, fragment, hasFragment := strings.Cut(text, "#")
	text, query, hasQuery := strings.Cut(text, "?")
	text = scheme + text
	if hasQuery {
		text += "?" + maskedQuery(query)
	}
	if hasFragment && fragment != "" {
		text += "#" + Masked
	}
	return text
}

// webhook matches a path with an element that names a webhook, and what follows: so are the URLs of
// Slack, Discord, Teams, Mattermost and others.
var webhook = regexp.MustCompile(`(?i)(/(?:services|hooks?|[a-z]*webhooks?[a-z0-9]*)/).+`)

// maskedQuery is a query with its keys. What has no key is masked as a whole.
func maskedQuery(query string) string {
	parts := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	for i, part := range parts {
		key, _, hasKey := strings.Cut(part, "=")
		if parts[i] = Masked; hasKey {
			parts[i] = key + "=" + Masked
		}
	}
	return strings.Join(parts, "&")
}

// GoString is what %#v prints.
func (u URL) GoString() string { return strconv.Quote(u.String()) }

// MarshalText masks credentials in JSON and other encodings.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// MarshalYAML masks credentials in YAML.
func (u URL) MarshalYAML() (any, error) { return u.String(), nil }

// LogValue masks credentials in slog attributes.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// Parse returns the parts of the URL. An error does not repeat its password.
func (u URL) Parse() (*url.URL, error) {
	parsed, err := url.Parse(string(u))
	if err != nil || parsed.Host == "" || strings.Contains(parsed.Host, ",") {
		return nil, fmt.Errorf("want a URL such as nats://127.0.0.1:4222, got %q", u.String())
	}
	return parsed, nil
}

// nextURL is a comma after which another URL begins. Other commas may be part of a password.
var nextURL = regexp.MustCompile(`,\s*[a-zA-Z][a-zA-Z0-9+.-]*://`)

// parseURLs splits the value of a variable into URLs.
func parseURLs(text string) (list []URL) {
	for text != "" {
		end := len(text)
		if next := nextURL.FindStringIndex(text); next != nil {
			end = next[0]
		}
		list = append(list, URL(strings.TrimSpace(text[:end])))
		text = strings.TrimPrefix(text[end:], ",")
	}
	return list
}

// Parse reads the text of a scalar as the type of its key. It is the one place where texts become
// values, whether they come from the file, a variable, a flag or a default tag. Errors say what is
// wanted; they don't repeat the text.
func Parse(t reflect.Type, text string) (any, error) {
	switch t {
	case durationType:
		return parseDuration(text)
	case sizeType:
		return ParseSize(text)
	case textsType:
		return parseTexts(text), nil
	case urlsType:
		return parseURLs(text), nil
	}
	switch t.Kind() {
	case reflect.String:
		return reflect.ValueOf(text).Convert(t).Interface(), nil
	case reflect.Bool:
		return parseBool(text)
	case reflect.Int:
		return parseInt(text)
	case reflect.Float32, reflect.Float64:
		return parseFloat(t, text)
	}
	panic("settings: no parser for " + t.String())
}

// longUnits are days and weeks, which time.ParseDuration does not have.
var longUnits = regexp.MustCompile(`([0-9]*\.?[0-9]+)([dw])`)

func parseDuration(text string) (time.Duration, error) {
	inHours := longUnits.ReplaceAllStringFunc(strings.TrimSpace(text), func(part string) string {
		hours := 24.0
		if strings.HasSuffix(part, "w") {
			hours *= 7
		}
		number, _ := strconv.ParseFloat(part[:len(part)-1], 64) // the pattern takes numbers only
		return strconv.FormatFloat(number*hours, 'f', -1, 64) + "h"
	})
	d, err := time.ParseDuration(inHours)
	if err != nil {
		return 0, errors.New("want a duration such as 500ms, 30s or 7d")
	}
	return d, nil
}

// parseTexts splits at commas; variables and flags give lists so.
func parseTexts(text string) []string {
	list := []string{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

func parseBool(text string) (bool, error) {
	switch strings.TrimSpace(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errors.New("want true or false")
}

func parseInt(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, errors.New("want a whole number")
	}
	return n, nil
}

func parseFloat(t reflect.Type, text string) (any, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(text), t.Bits())
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errors.New("want a number")
	}
	return reflect.ValueOf(f).Convert(t).Interface(), nil
}

// quote shows a value that was not understood, unless the key holds a secret.
func quote(t reflect.Type, text string) string {
	if t == secretType {
		return ""
	}
	const longest = 60
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return fmt.Sprintf(", got %q", text)
}

// ReadSecret is the value of a secret that is given either as itself or by a file (password and
// passwordFile). Line ends after the value in the file are not part of it. It reads the file each
// time, so a renewed secret is seen.
func ReadSecret(value Secret, file string) (Secret, error) {
	if file == "" {
		return value, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		return "", fmt.Errorf("read secret: %s is empty", file)
	}
	return Secret(text), nil
}

// ReadToken reads a token from its file, each time that it is called.
func ReadToken(file string) (string, error) {
	token, err := ReadSecret("", file)
	return string(token), err
}

// MakeToken puts a new token into a file that only the bridge's own user can read. A file that
// holds a token keeps it, unless another user made the file, and so may know the token.
func MakeToken(file string) error {
	if info, err := os.Lstat(file); err == nil && isOfOther(info) {
		return replaceToken(file)
	}
	if token, err := ReadToken(file); err == nil && token != "" {
		// it was made so; a volume may have been given to a group since
		return os.Chmod(file, 0o600)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!strings.Contains(err.Error(), "is empty") {
		return err
	}
	return replaceToken(file)
}

func isOfOther(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && stat.Uid != uint32(os.Geteuid())
}

func replaceToken(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".token-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // for when it could not be renamed
	_, err = fmt.Fprintln(temp, rand.Text()+rand.Text())
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}
