package accounts

import (
	"fmt"
	"testing"
	"time"
)

func TestSignupsAreCountedByAddress(t *testing.T) {
	t.Parallel()
	s := newSignups()
	now := time.Unix(1_000_000, 0)
	for n := range signupsPerHour {
		if wait := s.take("192.0.2.1:1000", now.Add(time.Duration(n)*time.Minute)); wait != 0 {
			t.Errorf("number %d waits %s", n, wait)
		}
	}
	if wait := s.take("192.0.2.1:2000", now.Add(30*time.Minute)); wait != 30*time.Minute {
		t.Errorf("one too many waits %s, want until the first is an hour old", wait)
	}
	if wait := s.take("192.0.2.2:1000", now.Add(30*time.Minute)); wait != 0 {
		t.Errorf("another address waits %s", wait)
	}
	if wait := s.take("192.0.2.1:1000", now.Add(time.Hour)); wait != 0 {
		t.Errorf("an hour later it waits %s", wait)
	}
	if wait := s.take("192.0.2.1:1000", now.Add(time.Hour)); wait != time.Minute {
		t.Errorf("the next one waits %s", wait)
	}
}

func TestSignupsDoNotGrowWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newSignups()
	now := time.Unix(1_000_000, 0)
	for n := range mostSignups {
		if wait := s.take(fmt.Sprintf("10.0.%d.%d:1", n/256, n%256), now); wait != 0 {
			t.Fatalf("number %d waits %s", n, wait)
		}
	}
	if wait := s.take("192.0.2.1:1", now); wait == 0 || len(s.made) != mostSignups {
		t.Errorf("one more waits %s; %d are known", wait, len(s.made))
	}
	if wait := s.take("192.0.2.1:1", now.Add(time.Hour)); wait != 0 || len(s.made) != 1 {
		t.Errorf("an hour later it waits %s; %d are known", wait, len(s.made))
	}
}

func TestOneClientIsOneNetwork(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80": "fe80::/64", "pipe": "pipe", "": "",
	} {
		if got := network(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}
