package gateway_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
)

// skillTar is a bundle with a SKILL.md and other files.
func skillTar(t *testing.T, name, description string, files ...skills.File) []byte {
	t.Helper()
	files = append(files, skills.File{Path: "SKILL.md", Content: []byte("---\nname: " + name + "\ndescription: " + description + "\n---\n")})
	b, err := skills.New(files)
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Tar()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func putSkill(k *kept, who holder, name, description string, files ...skills.File) answer {
	k.t.Helper()
	sent := string(skillTar(k.t, name, description, files...))
	return k.as(who, http.MethodPut, "/v1/skills/"+name, sent, "Content-Type", "application/x-tar")
}

func withSkills(o *gateway.Options) { o.Skills = o.Records.(*records.Store).Skills }

// TestSkillsOverHTTP: a skill is added, replaced, listed, downloaded and removed; the same again changes nothing.
func TestSkillsOverHTTP(t *testing.T) {
	k := openKept(t, withSkills)
	cl := client.New(k.url, k.anna.key)
	large := skills.File{Path: "data/large.bin", Content: bytes.Repeat([]byte("\x00\xff0123456789"), 100_000)}
	first := skillTar(t, "pdf", "one", large)
	a := k.as(k.anna, http.MethodPost, "/v1/skills", string(first), "Content-Type", "application/x-tar")
	made := decode[schemas.SkillDocument](t, a)
	if a.status != http.StatusCreated || made.Digest != skills.Digest(first) || made.Files != 2 || made.Description != "one" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	etag := a.header.Get("ETag")
	if a := k.as(k.anna, http.MethodPost, "/v1/skills", string(first), "Content-Type", "application/x-tar"); a.status != http.StatusConflict {
		t.Errorf("added again: %d %s", a.status, a.body)
	}
	if same, err := cl.Skills().Put(t.Context(), "pdf", first); err != nil || same.Updated != made.Updated {
		t.Errorf("the same again: %+v %v", same, err)
	}
	var got bytes.Buffer
	if n, err := cl.Skills().Download(t.Context(), "pdf", &got); err != nil || n != int64(len(first)) || !bytes.Equal(got.Bytes(), first) {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	second := skillTar(t, "pdf", "two")
	if a := k.as(k.anna, http.MethodPut, "/v1/skills/pdf", string(second), "Content-Type", "application/gzip", "If-Match", `"99999"`); a.status != http.StatusPreconditionFailed {
		t.Errorf("another revision: %d %s", a.status, a.body)
	}
	a = k.as(k.anna, http.MethodPut, "/v1/skills/"+string(made.ID), string(second), "Content-Type", "application/gzip", "If-Match", etag)
	if now := decode[schemas.SkillDocument](t, a); a.status != http.StatusOK || now.ID != made.ID || now.Digest == made.Digest ||
		now.Created != made.Created {
		t.Errorf("replaced: %d %s", a.status, a.body)
	}
	if list, err := cl.Skills().List(t.Context()); err != nil || len(list) != 1 || list[0].Description != "two" {
		t.Errorf("%+v %v", list, err)
	}
	for path, c := range map[string]struct {
		body, kind string
		status     int
	}{
		"/v1/skills/other": {string(second), "application/x-tar", http.StatusBadRequest},
		"/v1/skills/skill_" + strings.Repeat("a", 26): {string(second), "application/x-tar", http.StatusNotFound},
		"/v1/skills/pdf":     {"PK", "application/x-tar", http.StatusBadRequest},
		"/v1/skills/pdf?x=1": {string(second), "application/x-tar", http.StatusBadRequest},
		"/v1/skills/p%20df":  {string(second), "text/plain", http.StatusUnsupportedMediaType},
	} {
		if a := k.as(k.anna, http.MethodPut, path, c.body, "Content-Type", c.kind); a.status != c.status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if err := cl.Skills().Remove(t.Context(), "pdf"); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Skills().Get(t.Context(), string(made.ID)); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("what was removed: %v", err)
	}
}

// TestASkillInParts: files may come as a form, with their paths.
func TestASkillInParts(t *testing.T) {
	k := openKept(t, withSkills)
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for path, content := range map[string]string{"pdf/SKILL.md": "---\nname: pdf\ndescription: d\n---\n", "pdf/scripts/a.sh": "#!/bin/sh\n"} {
		p, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="files"; filename="` + path + `"`}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	a := k.as(k.anna, http.MethodPut, "/v1/skills/pdf", body.String(), "Content-Type", w.FormDataContentType())
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var got bytes.Buffer
	if _, err := client.New(k.url, k.anna.key).Skills().Download(t.Context(), "pdf", &got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&got); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s %o", h.Name, h.Mode))
	}
	if strings.Join(names, ", ") != "SKILL.md 644, scripts/a.sh 755" {
		t.Error(names)
	}
}

// TestSkillsOfTwoTenants: the same name is two skills, and an id of another's is one that never was.
func TestSkillsOfTwoTenants(t *testing.T) {
	k := openKept(t, withSkills)
	annas := decode[schemas.SkillDocument](t, putSkill(k, k.anna, "pdf", "of anna"))
	berts := decode[schemas.SkillDocument](t, putSkill(k, k.bert, "pdf", "of bert"))
	if annas.ID == berts.ID {
		t.Fatal("two accounts have one skill")
	}
	sent := string(skillTar(t, "pdf", "of bert again"))
	a := k.as(k.bert, http.MethodPut, "/v1/skills/"+string(annas.ID), sent, "Content-Type", "application/x-tar")
	if a.status != http.StatusNotFound {
		t.Errorf("another's skill: %d %s", a.status, a.body)
	}
	if a := k.as(k.bert, http.MethodDelete, "/v1/skills/"+string(annas.ID), ""); a.status != http.StatusNotFound {
		t.Errorf("another's skill: %d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodGet, "/v1/skills/pdf", ""); !strings.Contains(a.body, "of anna") {
		t.Errorf("%s", a.body)
	}
}

// TestOneSkillFromManyAtOnce: many clients replace a skill at the same time. One record remains, and its bundle is whole.
func TestOneSkillFromManyAtOnce(t *testing.T) {
	k := openKept(t, withSkills)
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			sent := skillTar(t, "pdf", fmt.Sprint("by ", n), skills.File{Path: "a", Content: bytes.Repeat([]byte{byte(n)}, 300<<10)})
			if _, err := client.New(k.url, k.anna.key).Skills().Put(t.Context(), "pdf", sent); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	cl := client.New(k.url, k.anna.key)
	if list, err := cl.Skills().List(t.Context()); err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	if _, err := cl.Skills().Download(t.Context(), "pdf", io.Discard); err != nil {
		t.Error(err)
	}
}
