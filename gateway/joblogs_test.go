package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

func TestPagesOfALog(t *testing.T) {
	e := open(t)
	k := e.keeper()
	path := "/v1/jobs/" + string(e.job().ID) + "/logs"
	if a := e.get(path); a.body != `{"offset":0,"next":0,"size":0,"ended":false}` {
		t.Errorf("with nothing printed: %s", a.body)
	}
	k.print("one\ntwo ü\n", false)
	for query, want := range map[string]string{
		"":                    `{"text":"one\ntwo ü\n","offset":0,"next":11,"size":11,"ended":false}`,
		"?offset=4&limit=3":   `{"text":"two","offset":4,"next":7,"size":11,"ended":false}`,
		"?offset=-1&limit=4":  `{"text":" ü\n","offset":7,"next":11,"size":11,"ended":false}`,
		"?limit=9":            `{"text":"one\ntwo ","offset":0,"next":8,"size":11,"ended":false}`,
		"?offset=9&limit=100": `{"data":"vAo=","offset":9,"next":11,"size":11,"ended":false}`,
		"?offset=11":          `{"offset":11,"next":11,"size":11,"ended":false}`,
		"?offset=99":          `{"offset":11,"next":11,"size":11,"ended":false}`,
	} {
		if a := e.get(path + query); a.status != http.StatusOK || a.body != want {
			t.Errorf("%s: %d %s, want %s", query, a.status, a.body, want)
		}
	}
	plain := http.Header{"Accept": {"text/plain"}}
	a := e.do(ask{method: http.MethodGet, path: path + "?offset=4", header: plain})
	if a.body != "two ü" || a.header.Get("Sandjet-Offset") != "4" || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("as text: %d %q %v", a.status, a.body, a.header)
	}
	if a := e.do(ask{method: http.MethodGet, path: path + "?offset=4&limit=3", header: plain}); a.body != "two" {
		t.Errorf("one page as text: %q", a.body)
	}
}

// TestLogsOfASettledJob: its sandbox is gone, and its completion has the end of what it printed.
func TestLogsOfASettledJob(t *testing.T) {
	e := open(t)
	j := e.job()
	e.settle(j, schemas.Completion{State: schemas.JobCompleted, ReportedBy: schemas.ReportedByProvider, Logs: "the end", LogBytes: 1007})
	if a := e.get("/v1/jobs/" + string(j.ID) + "/logs"); a.body != `{"text":"the end","offset":1000,"next":1007,"size":1007,"ended":true}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := e.get("/v1/jobs/" + string(j.ID) + "/logs?follow=1"); a.body != "the end" || a.header.Get("Sandjet-Offset") != "1000" {
		t.Errorf("followed: %d %q", a.status, a.body)
	}
}

// TestFollowedLogsEndWithTheJob reads over the client, which begins before the job does.
func TestFollowedLogsEndWithTheJob(t *testing.T) {
	e := open(t)
	k := e.keeper()
	j := e.job(func(j *schemas.Job) { j.State = schemas.JobWaiting })
	c := client.New(e.url, aliceKey)
	c.HTTP, c.Pause = http.DefaultClient, time.Millisecond
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := c.Jobs().FollowLogs(t.Context(), j.ID, 0, pw)
		pw.CloseWithError(err)
		done <- err
	}()
	j.State = schemas.JobRunning
	if _, err := lifecycle.OpenJobs(e.bus).Put(t.Context(), j.Key(), j); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("a line of some length\n", 30_000) // several pages
	k.print(want[:100], false)
	got := make([]byte, 100)
	if _, err := io.ReadFull(pr, got); err != nil {
		t.Fatal(err)
	}
	k.print(want[100:], true)
	rest, err := io.ReadAll(pr)
	if err != nil || string(got)+string(rest) != want {
		t.Errorf("read %d bytes of %d, %v", len(got)+len(rest), len(want), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFollowedLogsNeverLeaveOutBytes: what the sandbox drops ends the stream, and the next one says
// where it begins.
func TestFollowedLogsNeverLeaveOutBytes(t *testing.T) {
	e := open(t)
	k := e.keeper()
	j := e.job()
	k.print("0123456789", false)
	resp := e.open("/v1/jobs/" + string(j.ID) + "/logs?follow=1&limit=4")
	defer resp.Body.Close()
	got := make([]byte, 10)
	if _, err := io.ReadFull(resp.Body, got); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	k.log, k.first = append(k.log, "abcdefghij"...), 15
	k.mu.Unlock()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the gap the stream went on: %q, %v", rest, err)
	}
	k.print("", true)
	if a := e.get("/v1/jobs/" + string(j.ID) + "/logs?follow=1&offset=10"); a.body != "fghij" || a.header.Get("Sandjet-Offset") != "15" {
		t.Errorf("%q from %s", a.body, a.header.Get("Sandjet-Offset"))
	}
}

func TestDrainEndsFollowedLogs(t *testing.T) {
	e := open(t)
	k := e.keeper()
	k.print("hello", false)
	resp := e.open("/v1/jobs/" + string(e.job().ID) + "/logs?follow=1")
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	e.gw.Drain()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if a := e.get("/v1/jobs/" + string(e.job().ID) + "/logs?follow=1"); a.status != http.StatusServiceUnavailable {
		t.Errorf("while it drains: %d %s", a.status, a.body)
	}
}

func TestFollowedLogsAreCounted(t *testing.T) {
	e := open(t, func(o *gateway.Options) { o.Limits = gateway.Limits{Sockets: 1} })
	k := e.keeper()
	k.print("hello", false)
	logs := "/v1/jobs/" + string(e.job().ID) + "/logs"
	resp := e.open(logs + "?follow=1")
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if a := e.get(logs + "?follow=1"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("a second one: %d %s", a.status, a.body)
	}
	if a := e.get(logs); a.status != http.StatusOK {
		t.Errorf("a page: %d %s", a.status, a.body)
	}
	k.print("", true)
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the place is free again", func() bool { return e.get(logs+"?follow=1").status == http.StatusOK })
}

// open asks and leaves the body open.
func (e *edge) open(path string) *http.Response {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	e.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+aliceKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp
}
