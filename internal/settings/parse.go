package settings

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

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
