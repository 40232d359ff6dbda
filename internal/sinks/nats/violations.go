package nats

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Rights whose lack the sink has to know, by the API's subjects behind its prefix.
const (
	rightConsumer = "CONSUMER.CREATE."
	rightDelivery = "CONSUMER.MSG.NEXT."
	rightInfo     = "STREAM.INFO."
	rightNames    = "STREAM.NAMES"
	rightGet      = "STREAM.MSG.GET."
	rightDirect   = "DIRECT.GET."
	// rightInbox is to subscribe. The sink subscribes to nothing but inboxes.
	rightInbox = "inbox"
)

// What the sink does by these rights.
var (
	readRights = []string{rightConsumer, rightDelivery, rightInfo, rightNames, rightInbox}
	getRights  = []string{rightGet, rightDirect, rightInfo, rightInbox}
)

// violations has the newest violation of each of these rights. Others do not hide it: an event
// whose subject may not be published is sent again and again, and each time the server reports it.
type violations map[string]*lastError

func newViolations() violations {
	all := violations{}
	for _, right := range slices.Concat(readRights, getRights) {
		all[right] = new(lastError)
	}
	return all
}

// add records what the server reported, if it is a violation of one of the rights. Connect makes a
// Sink that has none.
func (v violations) add(err error, apiPrefix string) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	text, rest, _ := strings.Cut(err.Error(), `"`) // Permissions Violation for Publish to "subject"
	subject, _, _ := strings.Cut(rest, `"`)
	call, isAPI := strings.CutPrefix(subject, apiPrefix)
	for right, last := range v {
		if right == rightInbox && strings.Contains(text, "for Subscription") ||
			isAPI && strings.HasPrefix(call, right) {
			last.set(err)
		}
	}
}

// since returns a violation of one of the rights that is not older than this; nil for none.
func (v violations) since(age time.Duration, rights []string) error {
	for _, right := range rights {
		if err := v[right].since(age); err != nil {
			return err
		}
	}
	return nil
}

// apiPrefix is the beginning of the JetStream API's subjects, as API chooses it.
func (c *Connection) apiPrefix() string {
	switch {
	case c.Domain != "":
		return "$JS." + c.Domain + ".API."
	case c.APIPrefix != "":
		return strings.TrimSuffix(c.APIPrefix, ".") + "."
	default:
		return "$JS.API."
	}
}
