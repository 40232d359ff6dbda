package query

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Point is a place in the history of a cluster: a time, or a resourceVersion. The zero point is the
// newest version that is known.
type Point struct {
	At      time.Time
	Version uint64
}

// IsZero reports whether the point is the newest version.
func (p Point) IsZero() bool { return p.At.IsZero() && p.Version == 0 }

// IsBefore reports whether the point is a time before another.
func (p Point) IsBefore(at time.Time) bool { return !p.At.IsZero() && p.At.Before(at) }

// String is the point with its time zone.
func (p Point) String() string {
	if p.Version > 0 {
		return "resourceVersion " + strconv.FormatUint(p.Version, 10)
	}
	return ShowTime(p.At)
}

// ShowTime is a time with its zone, so that nobody mistakes one.
func ShowTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -07:00") }

// ParsePoint reads a point: 14:03 (the last one that was), 2h ago, a date, RFC 3339, "now", or a
// resourceVersion. A time of the future is an error.
func ParsePoint(text string, now time.Time) (p Point, err error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		return Point{Version: n}, nil
	}
	if text == "now" {
		return Point{At: now}, nil
	}
	if ago, ok := parseAgo(text); ok {
		return Point{At: now.Add(-ago)}, nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04",
		"2006-01-02T15:04:05", "2006-01-02",
	} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			p.At = at
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if clock, err := time.Parse(layout, text); err == nil {
			p.At = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(),
				clock.Second(), 0, now.Location())
			if p.At.After(now) {
				p.At = p.At.AddDate(0, 0, -1)
			}
		}
	}
	switch {
	case p.At.IsZero():
		return p, fmt.Errorf("%q is no time: want 14:03, 2h ago, 2026-11-22 14:03, RFC 3339, "+
			"or a resourceVersion", text)
	case p.At.After(now):
		return p, fmt.Errorf("%s is in the future: now is %s", ShowTime(p.At), ShowTime(now))
	}
	return p, nil
}

// parseAgo reads "2h ago", "90m", "3d".
func parseAgo(text string) (time.Duration, bool) {
	text = strings.ReplaceAll(strings.TrimSpace(strings.TrimSuffix(text, "ago")), " ", "")
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * float64(24*time.Hour)), err == nil && n > 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}
