package markdown

import "strings"

// scraps are the pieces of random documents.
var scraps = []string{
	"word ", "two words ", "a", "b ", "x", "1", "7. ", "été ", "日本語", "한국어 ", "👩‍👩‍👧‍👦", "🇻🇳🇩🇪 ", "e\u0301\u0302 ",
	"क्षि ", "\u00a0", "Ünï_cöde ",
	"*", "**", "***", "_", "__", "~~", "~", "`", "``", "```", "[", "]", "(", ")", "](", "!", "![", "<", ">", "&",
	"\\", "|", "#", "-", "+", "=", ":", "$", "@", "\"", "'", "^",
	"**bold** ", "*it* ", "***both***", "**a *b* c**", "~~gone~~ ", "`code` ", "`` a`b ``", "a**b**c ", "_x_",
	"snake_case_name ",
	"[link](https://example.com/a_b?c=1&d=2) ", "[**x**](http://e.com)", "[rel](docs/a.md) ",
	"![pic](https://e.com/p.png)", "[](https://e.com)", "<https://e.com/auto> ",
	"https://example.com/x_y_z ", "www.example.com ", "me@example.com ", "<b>", "</b>", "<br>", "<!-- x -->",
	"&amp;", "&lt;", "&copy;", "&#42;", "&bogus;", "\\*", "\\_", "\\`", "\\<",
	"@everyone ", "@user ", "<!channel>", "<@123>", "@here", "foo@bar ",
	"\n", "\n\n", "\n\n", "\n\n", "  \n", "\\\n", " ", "\t", "    ", "\r\n", "\x00", "\x1b[31m", "\xff", "\u2028",
	"\n\n# Title ", "\n\n## Sub *x* ", "\n\n###### Deep", "\nsetext\n===\n", "\nsetext\n---\n", "\n\n---\n\n",
	"\n***\n", "# ", "\n#",
	"\n\n- item ", "\n- item ", "\n  - nested ", "\n    - deep ", "\n\n1. one ", "\n2. two ", "\n3) three ",
	"\n   continued ", "\n- [x] done ", "\n- [ ] open ", "\n* star ", "\n-", "\n+ ", "- ", "1. ",
	"\n\n> quote ", "\n> more ", "\n>> nested ", "\n> ```\n> code\n> ```\n", "> ", "\n>", "\n> - item ",
	"\n- > quote",
	"\n\n```go\nfunc f() {\n\treturn 1 < 2 && `x`\n}\n```\n", "\n```\n", "\n~~~ text\ntildes ``` in\n~~~\n",
	"\n\n````md\n```\nx\n```\n````\n", "\n\n    indented\n      code\n\n", "\n   ```sh\n   ls\n   ```\n",
	"\n\n| a | b |\n|---|:-:|\n| 1 | **2** |\n| `x\\|y` | [l](l.md) |\n\n", "\n|x|\n|-|\n|1|2|\n", "\n| a \n",
	"\n:-\n", "\n|-|\n", "\n\n<div>\nhtml *x*\n</div>\n\n", "[ref]", "\n\n[ref]: https://e.com/ref\n\n",
	strings.Repeat("lorem ipsum dolor ", 20), strings.Repeat("x", 700), strings.Repeat("日本語",
		90), "**" + strings.Repeat("bold words ", 30) + "end** ",
	"\n\n```python\n" + strings.Repeat("print('<&>', 1)\n", 30) + "```\n\n", "\n" + strings.Repeat("- listed item\n",
		30), "[" + strings.Repeat("long label ", 40) + "](https://e.com/l)",
	strings.Repeat("\n> quoted line", 30), strings.Repeat("👩‍👩‍👧‍👦", 20), "`" + strings.Repeat("long code ",
		40) + "`", "\n\n|h1|h2|\n|-|-|\n" + strings.Repeat("|cell|*x*|\n", 25) + "\n",
}
