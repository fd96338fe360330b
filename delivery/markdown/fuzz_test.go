package markdown

import (
	"testing"

	"github.com/sandjet/sandjet/delivery/channel"
)

func FuzzRender(f *testing.F) {
	for _, s := range scraps {
		f.Add(s, uint8(1), uint16(700))
	}
	for _, s := range hostile(300) {
		f.Add(s, uint8(4), uint16(600))
	}
	f.Fuzz(func(t *testing.T, document string, format uint8, limit uint16) {
		o := Options{Format: formats[int(format)%len(formats)], Limit: max(leastLimit, int(limit)), Unit: channel.UTF16, MaxParts: 3}
		r := Render(document, o)
		if len(r.Parts) > o.MaxParts {
			t.Fatalf("%d parts", len(r.Parts))
		}
		for _, p := range r.Parts {
			if err := partHolds(p, o); err != nil {
				t.Fatalf("%v:\n%s", err, p.Text)
			}
			var err error
			switch o.Format {
			case channel.TelegramHTML:
				_, err = readTelegram(p.Text)
			case channel.SlackMrkdwn:
				_, err = readSlack(p.Text)
			case channel.PlainText, channel.DiscordText, channel.GitHubText:
			}
			if err != nil {
				t.Fatalf("%v:\n%s", err, p.Text)
			}
		}
	})
}
