package cli

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Somebody removes all events of one object from a stream: verify says so, and an archive that is
// made afterwards has a mark.
func TestRemovedObject(t *testing.T) {
	t.Parallel()
	url := jetStream(t)
	events := testkit.Events(t, 11, 20, 5)
	storeEvents(t, url, events)
	ask := func(args ...string) (code int, out string) {
		t.Helper()
		var stdout, stderr testkit.Buffer
		code = run(t.Context(), args, nil, &stdout, &stderr)
		return code, stdout.String() + stderr.String()
	}
	code, out := ask("verify", "--from", url+"/K8S")
	if code != ExitClean || !strings.Contains(out, "nothing is wrong") {
		t.Fatalf("%d, %s", code, out)
	}
	stream := storedStream(t, url)
	removed := 0
	for i := range events {
		if events[i].UID == events[3].UID {
			testkit.OK(t, stream.DeleteMsg(t.Context(), uint64(i+1)))
			removed++
		}
	}
	code, out = ask("verify", "--from", url+"/K8S")
	if code != ExitFailed || !strings.Contains(out, " removed") || !strings.Contains(out, "by no limit of the stream") {
		t.Errorf("of %d messages: %d, %s", removed, code, out)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"archive", "--from", url + "/K8S", "--dir", dir, "--once"}, "removed stretch"},
		{[]string{"timeline", "-A", "--since", "2000-01-01T00:00:00Z", "--dir", dir}, "which somebody had removed from the stream"},
		// The places of messages are no versions.
		{[]string{"coverage", "--dir", dir}, "gap: removed  -     - "},
	} {
		if code, out := ask(c.args...); code != ExitClean || !strings.Contains(out, c.want) {
			t.Errorf("%v: %d, %s", c.args, code, out)
		}
	}
}

// A batch that can't be read may hold events, so a topic with one is not without faults, and an
// archive of it says what is missing.
func TestUnreadableBatch(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s"))
	testkit.OK(t, err)
	t.Cleanup(cluster.Close)
	client := consumer(t, cluster.ListenAddrs(), "k8s")
	events := testkit.Events(t, 11, 2, 1)
	for i := range events {
		structured := &kgo.Record{Topic: "k8s", Value: event.AppendStructured(nil, &events[i]), Headers: []kgo.RecordHeader{
			{Key: "content-type", Value: []byte("application/cloudevents+json")},
		}}
		testkit.OK(t, client.ProduceSync(t.Context(), structured).FirstErr())
		produceDamaged(t, client, cluster.TopicInfo("k8s"))
	}
	from, dir := "kafka://"+cluster.ListenAddrs()[0]+"/k8s", t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"verify", "--from", from}, ExitFailed, []string{"unreadable", "can't be read"}},
		{[]string{"archive", "--from", from, "--dir", dir, "--once"}, ExitClean, []string{"4 versions and 8 marks stored", "0 other messages", "6 damaged places"}},
		{[]string{"archive", "--from", from, "--dir", dir, "--once"}, ExitClean, []string{"0 messages read"}},
		{[]string{"timeline", "-A", "--since", "2000-01-01T00:00:00Z", "--dir", dir}, ExitClean, []string{
			"messages 1 to 1, in a batch that can't be read", "messages 11 to 11, in a batch that can't be read",
		}},
		{[]string{"coverage", "--dir", dir}, ExitClean, []string{"gap: damaged"}},
	} {
		var out testkit.Buffer
		code := run(t.Context(), c.args, nil, &out, &out)
		for _, want := range c.want {
			if code != c.code || !strings.Contains(out.String(), want) {
				t.Errorf("%v: exit code %d without %q\n%s", c.args, code, want, out.String())
			}
		}
	}
}
