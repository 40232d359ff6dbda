package e2e_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// cellStyle is how a terminal shows characters.
type cellStyle struct {
	text, ground string // colours; "" for the terminal's
	bold, swaps  bool
}

// Sizes of a picture, in pixels: of a character, and of the edge.
const (
	cellWidth, cellHeight = 8.4, 17
	pictureEdge           = 10
)

// Colours of a terminal without any.
const (
	plainText, plainGround = "#d8d8d8", "#101418"
)

// pictureOf is a screen as tmux captures it, with its escape sequences, as SVG.
func pictureOf(screen string) []byte {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	var grounds, texts bytes.Buffer
	widest := 0
	var style cellStyle // it lasts over lines
	for row, line := range lines {
		column := 0
		for line != "" {
			if sequence, rest, is := cutSequence(line); is {
				style.apply(sequence)
				line = rest
				continue
			}
			end := strings.IndexByte(line, 0x1b)
			if end < 0 {
				end = len(line)
			}
			style.draw(&grounds, &texts, line[:end], row, column)
			column += utf8.RuneCountInString(line[:end])
			line = line[end:]
		}
		widest = max(widest, column)
	}
	width, height := float64(widest)*cellWidth+2*pictureEdge, len(lines)*cellHeight+2*pictureEdge
	var picture bytes.Buffer
	fmt.Fprintf(&picture, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="monospace" font-size="14">`+"\n", width, height)
	fmt.Fprintf(&picture, `<rect width="100%%" height="100%%" rx="6" fill="%s"/>`+"\n%s%s</svg>\n", plainGround, grounds.String(), texts.String())
	return picture.Bytes()
}

// cutSequence takes an SGR sequence from the beginning of a line.
func cutSequence(line string) (parameters, rest string, is bool) {
	inner, is := strings.CutPrefix(line, "\x1b[")
	end := strings.IndexFunc(inner, func(r rune) bool { return r >= 0x40 })
	if !is || end < 0 {
		return "", strings.TrimPrefix(line, "\x1b"), strings.HasPrefix(line, "\x1b")
	}
	if inner[end] != 'm' {
		return "", inner[end+1:], true // it moves the cursor, or the like
	}
	return inner[:end], inner[end+1:], true
}

func (s *cellStyle) apply(parameters string) {
	list := strings.FieldsFunc(parameters, func(r rune) bool { return r == ';' || r == ':' })
	if len(list) == 0 {
		*s = cellStyle{}
	}
	for i := 0; i < len(list); i++ {
		n, _ := strconv.Atoi(list[i]) // 0 for what is none
		switch {
		case n == 0:
			*s = cellStyle{}
		case n == 1:
			s.bold = true
		case n == 7:
			s.swaps = true
		case n == 22:
			s.bold = false
		case n == 27:
			s.swaps = false
		case n == 39:
			s.text = ""
		case n == 49:
			s.ground = ""
		case n == 38, n == 48:
			colour, used := extended(list[i+1:])
			if i += used; n == 38 {
				s.text = colour
			} else {
				s.ground = colour
			}
		case n >= 30 && n < 38:
			s.text = paletteColour(n - 30)
		case n >= 40 && n < 48:
			s.ground = paletteColour(n - 40)
		case n >= 90 && n < 98:
			s.text = paletteColour(n - 82)
		}
	}
}

// extended reads a colour of the palette, or one of three numbers.
func extended(list []string) (colour string, used int) {
	number := func(i int) int { n, _ := strconv.Atoi(list[i]); return n }
	switch {
	case len(list) >= 2 && list[0] == "5":
		return paletteColour(number(1)), 2
	case len(list) >= 4 && list[0] == "2":
		return fmt.Sprintf("#%02x%02x%02x", number(1), number(2), number(3)), 4
	}
	return "", 0
}

// paletteColour is one of xterm's 256.
func paletteColour(n int) string {
	switch {
	case n < 16:
		return strings.Fields("#000000 #cd3131 #0dbc79 #e5e510 #2472c8 #bc3fbc #11a8cd #e5e5e5 #666666 #f14c4c #23d18b #f5f543 #3b8eea #d670d6 #29b8db #ffffff")[n]
	case n < 232:
		level := func(i int) int {
			if i == 0 {
				return 0
			}
			return 55 + 40*i
		}
		n -= 16
		return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6))
	}
	grey := 8 + 10*(n-232)
	return fmt.Sprintf("#%02x%02x%02x", grey, grey, grey)
}

// draw adds characters of one style.
func (s cellStyle) draw(grounds, texts *bytes.Buffer, text string, row, column int) {
	if s.swaps {
		s.text, s.ground = orColour(s.ground, plainGround), orColour(s.text, plainText)
	}
	n := utf8.RuneCountInString(text)
	left, top := pictureEdge+float64(column)*cellWidth, pictureEdge+row*cellHeight
	if s.ground != "" && s.ground != "#000000" {
		fmt.Fprintf(grounds, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, top, float64(n)*cellWidth, cellHeight, s.ground)
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	weight := ""
	if s.bold {
		weight = ` font-weight="bold"`
	}
	fmt.Fprintf(texts, `<text xml:space="preserve" x="%.1f" y="%d" textLength="%.1f" fill="%s"%s>`, left, top+cellHeight-4, float64(n)*cellWidth, orColour(s.text, plainText), weight)
	_ = xml.EscapeText(texts, []byte(text)) // a buffer takes all
	texts.WriteString("</text>\n")
}

func orColour(colour, other string) string {
	if colour == "" {
		return other
	}
	return colour
}

func TestPicture(t *testing.T) {
	got := string(pictureOf("a\x1b[1;38;5;196m<b>\x1b[0m\n\x1b[48;2;1;2;3m c\x1b[K\n"))
	for _, want := range []string{
		`fill="#d8d8d8">a</text>`, `fill="#ff0000" font-weight="bold">&lt;b&gt;</text>`,
		`<rect x="10.0" y="27" width="16.8" height="17" fill="#010203"/>`, `> c</text>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
}
