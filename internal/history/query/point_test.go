package query_test

import (
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/history/query"
)

func TestPoint(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := time.Date(2026, 11, 22, 14, 30, 0, 0, zone)
	day := func(day, hour, minute, second int) query.Point {
		return query.Point{At: time.Date(2026, 11, day, hour, minute, second, 0, zone)}
	}
	for text, want := range map[string]query.Point{
		"14:03":                {At: day(22, 14, 3, 0).At},
		"14:03:07":             {At: day(22, 14, 3, 7).At},
		"15:00":                {At: day(21, 15, 0, 0).At}, // yesterday: today it is not yet 15:00
		"2h ago":               {At: now.Add(-2 * time.Hour)},
		"90m":                  {At: now.Add(-90 * time.Minute)},
		"1d ago":               {At: day(21, 14, 30, 0).At},
		"1h 30m ago":           {At: day(22, 13, 0, 0).At},
		"now":                  {At: now},
		"2026-11-20":           {At: day(20, 0, 0, 0).At},
		"2026-11-20 08:09":     {At: day(20, 8, 9, 0).At},
		"2026-11-20T07:09:00Z": {At: day(20, 8, 9, 0).At},
		"48213":                {Version: 48213},
	} {
		if got, err := query.ParsePoint(text, now); err != nil || !got.At.Equal(want.At) || got.Version != want.Version {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "noon", "25:00", "2026-11-23", "2026-11-22 14:31", "-2h", "2 ago", "0", "2h from now"} {
		if got, err := query.ParsePoint(text, now); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}
