package embedded

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/testwait"
)

func TestMostConnectionsOfTheServer(t *testing.T) {
	for files, want := range map[int]int{256: 256, 1024: 256, 4096: 512, 65_536: 8192, 1 << 20: 65_536, 1 << 30: 65_536} {
		if got := mostConnections(files); got != want {
			t.Errorf("%d descriptors: %d, want %d", files, got, want)
		}
	}
}

func TestAddressesOfConnections(t *testing.T) {
	for ip, want := range map[string]string{
		"192.0.2.7": "192.0.2.7/32", "::ffff:192.0.2.7": "192.0.2.7/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
		"": "invalid Prefix", "pipe": "invalid Prefix",
	} {
		if got := addressOf(ip).String(); got != want {
			t.Errorf("%q: %s, want %s", ip, got, want)
		}
	}
}

// Of an address the oldest connections that say nothing are ended beyond 64, young ones only where there are many; and of all what is
// beyond half.
//
//guarantee:bounds
func TestTooManyNewcomers(t *testing.T) {
	now := time.Now()
	list := func(address string, first uint64, n int, age time.Duration) (l []newcomer) {
		for i := range n {
			l = append(l, newcomer{first + uint64(i), netip.MustParsePrefix(address), now.Add(-age + time.Duration(i))}) // the first is the oldest
		}
		return l
	}
	const one, two = "192.0.2.1/32", "192.0.2.2/32"
	ids := func(first uint64, n int) (l []uint64) {
		for i := range n {
			l = append(l, first+uint64(i))
		}
		return l
	}
	for name, tc := range map[string]struct {
		list []newcomer
		want []uint64
	}{
		"none":                      {},
		"as many as may be":         {list: list(one, 1, 64, time.Minute)},
		"young":                     {list: list(one, 1, 100, time.Second/2)},
		"old":                       {list: list(one, 1, 100, 2*time.Second), want: ids(1, 36)},
		"another address":           {list: slices.Concat(list(two, 500, 64, 3*time.Second), list(one, 1, 100, 2*time.Second)), want: ids(1, 36)},
		"old, and young":            {list: slices.Concat(list(one, 1, 10, 2*time.Second), list(one, 50, 60, time.Second/2)), want: ids(1, 6)},
		"young, and more than half": {list: list(one, 1, 201, time.Second/2), want: ids(1, 137)},
		"many addresses": {list: slices.Concat(list(one, 1, 60, time.Second/2), list(two, 100, 60, time.Second/3),
			list("192.0.2.3/32", 200, 60, time.Second/4), list("192.0.2.4/32", 300, 60, time.Second/5)), want: ids(1, 40)},
	} {
		got := tooMany(tc.list, 400, now)
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// Who takes all connections and says nothing does not keep others out.
//
//guarantee:bounds
func TestConnectionsThatSayNothingAreEnded(t *testing.T) {
	testwait.ForRealTime(t)
	const most = 150
	s, err := Start(t.Context(), Options{Memory: true, Connections: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	address := strings.TrimPrefix(s.URL(), "nats://")
	for range most + 50 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	own := nats.UserInfo(InProcessUser, s.own.password)
	var nc *nats.Conn
	testwait.Eventually(t, "a client connects", func() bool {
		nc, err = nats.Connect(s.URL(), own, nats.NoReconnect())
		return err == nil
	})
	defer nc.Close()
	testwait.Eventually(t, "few are left", func() bool { return s.running.Load().NumClients() <= newcomersOfAddress+2 })
	if !nc.IsConnected() {
		t.Error("who has said who it is was cut off: " + fmt.Sprint(nc.LastError()))
	}
	ended := server.Kicked.String()
	testwait.Eventually(t, "one is ended before its time to say who it is is over", func() bool {
		closed, err := s.running.Load().Connz(&server.ConnzOptions{State: server.ConnClosed})
		return err == nil && slices.ContainsFunc(closed.Conns, func(c *server.ConnInfo) bool { return c.Reason == ended })
	})
}

// Of clients that are refused one line a minute is logged for each kind of fault.
//
//guarantee:bounds
func TestRefusedClientsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		l := &serverLog{log: slog.New(slog.NewTextHandler(&lines, nil))}
		for range 1000 {
			l.Errorf("127.0.0.1:1 - cid:7 - maximum connections exceeded")
			l.Errorf("authentication error - User %q", "x")
		}
		time.Sleep(time.Minute)
		l.Errorf("127.0.0.1:1 - cid:7 - maximum connections exceeded")
		got := lines.String()
		if strings.Count(got, "client refused") != 3 || strings.Count(got, "left_out=999") != 1 || strings.Contains(got, "ERROR") {
			t.Errorf("%.1000s", got)
		}
	})
}
