package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccy/go-yaml"
)

// TestFormatsOfLists: the format table omits the columns of -o wide, the format name has the first column alone, and YAML has the same
// fields as JSON.
func TestFormatsOfLists(t *testing.T) {
	t.Parallel()
	type thing struct {
		ID    string `json:"id"`
		Owner string `json:"owner"`
		Text  string `json:"text"`
	}
	list := []thing{{"t_1", "anna", "a: b"}, {"t_2", "-", "c\x1b[2J"}}
	for name, want := range map[string]string{
		"table": "ID   TEXT\nt_1  a: b\nt_2  c\uFFFD[2J\n",
		"wide":  "ID   OWNER  TEXT\nt_1  anna   a: b\nt_2  -      c\uFFFD[2J\n",
		"name":  "t_1\nt_2\n",
	} {
		var out bytes.Buffer
		tm := terminal{out: &out, names: name == "name", wide: name == "wide"}
		err := printList(tm, list, "No things.", "ID\tOWNER*\tTEXT", func(v thing) string {
			return fmt.Sprintf("%s\t%s\t%s", v.ID, v.Owner, printable(v.Text))
		})
		if err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", name, out.String(), err, want)
		}
	}
	var out bytes.Buffer
	tm := terminal{out: &yamlWriter{w: &out}, json: true}
	if err := printList(tm, list, "", "", func(thing) string { return "" }); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(out.String(), "---\n")
	if len(documents) != len(list) {
		t.Fatalf("%d documents: %q", len(documents), out.String())
	}
	for i, text := range documents {
		var got map[string]string
		if err := yaml.Unmarshal([]byte(text), &got); err != nil || got["id"] != list[i].ID || got["owner"] != list[i].Owner ||
			got["text"] != printable(list[i].Text) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestTimesAreReadFromNow: lists say how long ago something was, or how long until then.
func TestTimesAreReadFromNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for d, want := range map[time.Duration]string{
			0: "now", -5 * time.Second: "now", 3 * time.Second: "3s ago", 2 * time.Minute: "2m ago", 3 * time.Hour: "3h ago",
			50 * time.Hour: "2d ago", -40 * time.Second: "in 40s", -150 * time.Second: "in 2m", -23 * time.Hour: "in 23h", -49 * time.Hour: "in 2d",
		} {
			if got := ago(time.Now().Add(-d)); got != want {
				t.Errorf("%s: %q, want %q", d, got, want)
			}
		}
		if got := ago(time.Time{}); got != "-" {
			t.Errorf("no time is %q", got)
		}
	})
}
