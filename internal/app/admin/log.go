package admin

import (
	"fmt"
	"log/slog"
	"strings"
)

// logPrinter is what promhttp takes for a log.
type logPrinter struct{ log *slog.Logger }

func (p logPrinter) Println(v ...any) {
	p.log.Warn("metrics can't be gathered", "err", strings.TrimSpace(fmt.Sprintln(v...)))
}
