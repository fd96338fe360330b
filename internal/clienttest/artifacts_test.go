package clienttest

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// hostile is what an artifact tries in a browser: to report what it can read of the origin that serves it.
const hostile = `
  const say = (what) => fetch("/report?who=WHO&what=" + encodeURIComponent(what), { credentials: "include" });
  try { say(document.cookie + " " + localStorage.getItem("secret")) } catch (e) { say("nothing: " + e) }`

// victim is a page of the same origin, with something to steal. It shows artifacts in every way that a page has, and then says so.
const victim = `<!doctype html><body><script>
  document.cookie = "key=stolen"; localStorage.setItem("secret", "stolen too");
  let left = PATHS.length * 2;
  const done = () => { if (--left === 0) setTimeout(() => fetch("/report?who=page&what=done"), 1000) };
  const give = setTimeout(() => { left = 1; done() }, 2500); // a download ends no frame
  for (const path of PATHS) for (const kind of ["iframe", "object"]) {
    const e = document.createElement(kind);
    e.onload = e.onerror = done;
    e[kind === "iframe" ? "src" : "data"] = path;
    document.body.append(e);
  }
</script>`

// TestAHostileArtifactReadsNothing: pages and pictures that commands have written are opened in a real browser, on the origin of the
// gateway, whose key the browser has. They run nothing, also where a proxy takes their disposition away. Without the gateway's headers
// they do, which shows that the test can see it.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestAHostileArtifactReadsNothing(t *testing.T) {
	t.Parallel()
	long(t)
	chromium := program(t, "chromium", "chromium-browser", "google-chrome")
	bus := natstest.Start(t, natstest.Durability("os")).Bus
	gw := gateway.New(gateway.Options{Bus: bus, Records: book{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	edge := httptest.NewServer(gw)
	t.Cleanup(func() { gw.Drain(); edge.Close() })

	target, err := url.Parse(edge.URL)
	if err != nil {
		t.Fatal(err)
	}
	// A site that keeps the key for the browser: the worst place for an artifact.
	through := func(change func(http.Header)) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				r.Out.Header.Set("Authorization", "Bearer "+aliceKey)
			},
			ModifyResponse: func(r *http.Response) error { change(r.Header); return nil },
		}
	}
	pages := http.NewServeMux()
	pages.Handle("/asis/", http.StripPrefix("/asis", through(func(http.Header) {})))
	pages.Handle("/shown/", http.StripPrefix("/shown", through(func(h http.Header) { h.Del("Content-Disposition") })))
	pages.Handle("/bare/", http.StripPrefix("/bare", through(func(h http.Header) {
		for _, name := range []string{"Content-Disposition", "Content-Security-Policy", "X-Content-Type-Options"} {
			h.Del(name)
		}
	})))
	var mu sync.Mutex
	said := map[string]string{}
	done := make(chan struct{})
	pages.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		mu.Lock()
		defer mu.Unlock()
		if said[q.Get("who")] = q.Get("what"); q.Get("who") == "page" {
			close(done)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	var paths []string
	for _, way := range []string{"asis", "shown", "bare"} {
		for name, text := range map[string]string{
			"html": "<!doctype html><script>" + hostile + "</script>",
			"svg":  `<svg xmlns="http://www.w3.org/2000/svg"><script><![CDATA[` + hostile + `]]></script></svg>`,
			"txt":  "<!doctype html><script>" + hostile + "</script>",
		} {
			paths = append(paths, "/"+way+keep(t, bus, "outputs/a."+name, strings.ReplaceAll(text, "WHO", way+"-"+name)))
		}
	}
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, strings.ReplaceAll(victim, "PATHS", jsList(paths)))
	})
	site := httptest.NewServer(pages)
	t.Cleanup(site.Close)
	browse(t, chromium, site.URL+"/")
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the page does not end")
	}
	mu.Lock()
	defer mu.Unlock()
	delete(said, "page")
	for _, control := range []string{"bare-html", "bare-svg"} {
		if !strings.Contains(said[control], "key=stolen stolen too") {
			t.Errorf("%s, which is not protected, has read %q: the test shows nothing", control, said[control])
		}
		delete(said, control)
	}
	if len(said) > 0 {
		t.Errorf("artifacts have run: %v", said)
	}
}

func jsList(paths []string) string {
	quoted := make([]string, len(paths))
	for i, p := range paths {
		quoted[i] = fmt.Sprintf("%q", p)
	}
	slices.Sort(quoted)
	return "[" + strings.Join(quoted, ",") + "]"
}

// keep stores an artifact as a worker does, and returns its path.
func keep(t *testing.T, b *streams.Bus, name, content string) string {
	t.Helper()
	chunk, err := streams.StoreArtifactChunk(t.Context(), b, alice, []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	call := schemas.Call{Account: alice, Conversation: "c", ID: "call_1"}
	a := schemas.NewArtifact(call, name, int64(len(content)), chunk, []byte(content), b.Now())
	if err := streams.StoreArtifact(t.Context(), b, alice, streams.KeptArtifact{Artifact: a, Chunks: []string{chunk}}); err != nil {
		t.Fatal(err)
	}
	return a.URL
}
