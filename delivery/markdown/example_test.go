package markdown_test

import (
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/markdown"
)

func ExampleRender() {
	document := "# Result\n\nAll **42** tests pass in `delivery` & below, see [the log](https://example.com/log).\n\n" +
		"| package | tests |\n|---|--:|\n| channel | 7 |\n| markdown | 35 |\n"
	for _, format := range []channel.Format{channel.TelegramHTML, channel.SlackMrkdwn} {
		r := markdown.Render(document, markdown.Options{Format: format, Limit: 4000, Unit: channel.UTF16})
		fmt.Println(r.Parts[0].Text)
	}
	// Output:
	// <b>Result</b>
	//
	// All <b>42</b> tests pass in <code>delivery</code> &amp; below, see <a href="https://example.com/log">the log</a>.
	//
	// <pre>package  │ tests
	// ─────────┼──────
	// channel  │     7
	// markdown │    35</pre>
	// *Result*
	//
	// All *42* tests pass in `delivery` &amp; below, see <https://example.com/log|the log>.
	//
	// ```
	// package  │ tests
	// ─────────┼──────
	// channel  │     7
	// markdown │    35
	// ```
}

func ExampleRender_long() {
	var document strings.Builder
	document.WriteString("The build failed:\n\n```sh\n")
	for i := range 60 {
		fmt.Fprintf(&document, "step %d: ok, nothing to be done\n", i)
	}
	document.WriteString("```\n")
	r := markdown.Render(document.String(), markdown.Options{Format: channel.GitHubText, Limit: 1000, MaxParts: 4})
	fmt.Println(len(r.Parts), r.Cut)
	for _, p := range r.Parts {
		fmt.Printf("%.44q … %q\n", p.Text, p.Text[len(p.Text)-12:])
	}
	// Output:
	// 2 false
	// "The build failed:\n\n```sh\nstep 0: ok, nothing" … " be done\n```"
	// "```sh\nstep 30: ok, nothing to be done\nstep 3" … " be done\n```"
}
