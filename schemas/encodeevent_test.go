package schemas_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestEveryFieldOfAnEventIsEncoded fails for a field that was added to the type alone.
func TestEveryFieldOfAnEventIsEncoded(t *testing.T) {
	t.Parallel()
	var e schemas.Event
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("text of " + v.Type().Field(i).Name)
		case reflect.Struct:
			f.Set(reflect.ValueOf(time.Date(2026, 11, 23, 1, 2, 3, 4000, time.FixedZone("", -3600))))
		case reflect.Slice:
			f.Set(reflect.ValueOf(json.RawMessage("{ \"a\" : \"<b> \u2028 \" }")))
		default:
			t.Fatalf("the test does not know how to fill %s", v.Type().Field(i).Name)
		}
	}
	sameAsGeneric(t, e)
	sameAsGeneric(t, schemas.Event{})
	sameAsGeneric(t, schemas.Event{Time: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)})
	sameAsGeneric(t, schemas.Event{Data: json.RawMessage("")})
}

// FuzzEventEncode: an event is written as every other thing is, and what cannot be written is an error.
func FuzzEventEncode(f *testing.F) {
	f.Add("acct.call.started.1", "c_\"\\\x00\u2028é\xff<", "", int64(0), []byte(`{"call":"x","text":"a < b \u2028"}`))
	f.Add("", "", "00-1-2-3", int64(1<<60), []byte("[1, 2,\n3]"))
	f.Add("x", "y", "z", int64(-1), []byte("{"))
	f.Fuzz(func(t *testing.T, id, subject, trace string, at int64, data []byte) {
		sameAsGeneric(t, schemas.Event{
			SpecVersion: "1.0", ID: id, Type: schemas.EventType(subject), Source: trace + id, Subject: subject,
			Time: time.Unix(0, at).UTC(), Conversation: schemas.ConversationID(id), TraceParent: trace, Data: data,
		})
	})
}

func sameAsGeneric(t *testing.T, e schemas.Event) {
	t.Helper()
	want, wantErr := schemas.EncodeJSON(e)
	got, err := e.Encode()
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%+v: %v; want %v", e, err, wantErr)
	}
	if err == nil && string(got) != string(want) {
		t.Errorf("%+v became\n%s\nwant\n%s", e, got, want)
	}
}
