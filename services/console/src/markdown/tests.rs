#![allow(clippy::unwrap_used)]
use super::*;
use crate::text;
use proptest::prelude::*;

const DOCUMENT: &str = "\
# Title with `code`

First *paragraph* with **bold text** and a [link](https://example.org/a) that is long enough to
wrap at forty columns.

- one
- two with `code`
  - nested
  - deeper
- three

1. first

   second paragraph of the first
2. second

> quoted text that is long enough to be wrapped into two lines
>
> > nested quote

```rust
fn main() {}

    indented
```

| name | value |
|:-----|------:|
| a    |     1 |
| long name here | 22 |

---

- [x] done
- [ ] open

![alt](pic.png) and <https://auto.link> and ~~gone~~

Last line with a hard break\\
here.
";

#[test]
fn every_kind_of_block_is_shown() {
    let expected = "\
# Title with `code`

First paragraph with bold text and a
link (https://example.org/a) that is
long enough to wrap at forty columns.

• one
• two with `code`
  ◦ nested
  ◦ deeper
• three

1. first

   second paragraph of the first

2. second

│ quoted text that is long enough to be
│ wrapped into two lines
│
│ │ nested quote

    fn main() {}
    
        indented

name           │ value
───────────────┼──────
a              │     1
long name here │    22

────────────────────────────────────────

• ☑ done
• ☐ open

[image: alt] (pic.png) and
https://auto.link and gone

Last line with a hard break
here.
";
    assert_eq!(render(DOCUMENT, Look::plain(40)), expected);
}

#[test]
fn colours_stand_for_the_marks() {
    let shown = render("## A `b`\n\n*i* **b** `c` [l](u)", Look::colored(80));
    assert_eq!(
        shown,
        "\u{1b}[1m\u{1b}[35mA \u{1b}[0m\u{1b}[1m\u{1b}[36mb\u{1b}[0m\n\n\u{1b}[3mi\u{1b}[0m \
         \u{1b}[1mb\u{1b}[0m \u{1b}[36mc\u{1b}[0m \u{1b}[4m\u{1b}[34ml\u{1b}[0m\u{1b}[2m (u)\u{1b}[0m\n"
    );
}

#[test]
fn a_table_too_wide_for_columns_becomes_records() {
    let table = "| a | b | c | d |\n|--|--|--|--|\n| one two | three four | five six | seven |\n";
    assert_eq!(
        render(table, Look::plain(20)),
        "a: one two\nb: three four\nc: five six\nd: seven\n"
    );
}

#[test]
fn escape_codes_in_the_text_do_not_reach_the_terminal() {
    let shown = render(
        "a \u{1b}[31mred\u{1b}[0m `\u{1b}]0;x\u{7}c`\n\n    \u{1b}[2Jcode",
        Look::plain(80),
    );
    let seen = [
        r"a \u001b[31mred\u001b[0m `\u001b]0;x\u0007c`",
        "",
        r"    \u001b[2Jcode",
        "",
    ];
    assert_eq!(shown, seen.join("\n"));
}

#[test]
fn blocks_come_out_as_soon_as_they_are_complete() {
    let mut stream = MarkdownStream::new(Look::plain(40));
    let steps: [(&str, &str); 12] = [
        ("# Ti", ""),
        ("tle\n", "# Title\n"),
        ("A para", ""),
        ("graph\n", ""),
        ("goes on.\n\n", "\nA paragraph goes on.\n"),
        ("- a\n- b\n", ""),
        ("\n", ""),
        ("- c\n\ntext", ""),
        ("\n", "\n• a\n\n• b\n\n• c\n"),
        ("\n```\ncode\n", "\ntext\n"),
        ("```\n", "\n    code\n"),
        ("end", ""),
    ];
    for (piece, expected) in steps {
        assert_eq!(stream.push(piece), expected, "after {piece:?}");
    }
    assert_eq!(stream.unfinished(), lines("end", Look::plain(40)));
    assert_eq!(stream.finish(), "\nend\n");
    assert_eq!(stream.finish(), "");
}

/// `text` in pieces of the given sizes, over and over.
fn streamed(text: &str, sizes: &[usize], look: Look) -> String {
    let mut stream = MarkdownStream::new(look);
    let mut out = String::new();
    let mut rest = text;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let mut end = rest.len().min((*size).max(1));
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        out.push_str(&stream.push(piece));
        rest = after;
    }
    out.push_str(&stream.finish());
    out
}

proptest! {
    #[test]
    fn a_stream_says_what_the_whole_says(sizes in proptest::collection::vec(1usize..40, 1..8)) {
        let look = Look::plain(40);
        prop_assert_eq!(streamed(DOCUMENT, &sizes, look), render(DOCUMENT, look));
    }

    // No link definitions: a stream cannot know of those that come later.
    #[test]
    fn whatever_the_markdown_a_stream_says_what_the_whole_says(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("\n"), Just("\n\n"), Just("- "), Just("* a\n"), Just("1. b\n"), Just("> q\n"),
                Just("# h\n"), Just("#"), Just("```\n"), Just("~~~\n"), Just("    "), Just("---\n"), Just("==\n"),
                Just("|a|b|\n|-|-|\n"), Just("|1|2|\n"), Just("text "), Just("**b** "), Just("`c`"),
                Just("  "), Just("<div>\n"), Just("</div>\n"), Just("<!-- x\n"), Just("-->\n"), Just("\t"), Just("word\n"), Just("\\\n")
            ],
            0..24,
        ),
        sizes in proptest::collection::vec(1usize..9, 1..4),
    ) {
        let text = pieces.concat();
        let look = Look::plain(40);
        prop_assert_eq!(streamed(&text, &sizes, look), render(&text, look), "{:?}", text);
    }

    #[test]
    fn any_text_is_shown_within_the_width(text in "[ a-z#>*`|0-9.\n-]{0,120}", width in 20usize..60) {
        for line in lines(&text, Look::plain(width)) {
            // Containers may be nested deeper than the width; what is in them still has room.
            let nested = text.matches(['>', '*', '-', '.']).count() * 4;
            prop_assert!(line.width() <= width.max(nested + 8), "{:?}", line.plain());
            prop_assert_eq!(text::clean(&line.plain()).into_owned(), line.plain());
        }
    }
}

#[test]
fn only_a_backslash_that_escapes_vanishes() {
    for (source, shown) in [
        (
            r"It lies in C:\dir\file, see there.",
            r"It lies in C:\dir\file, see there.",
        ),
        (
            r"A line feed is \n, a tab \t.",
            r"A line feed is \n, a tab \t.",
        ),
        (r"C:\Users\me\_notes\!x", r"C:\Users\me_notes!x"),
        (r"\*not emphasis\*, \\, \`", r"*not emphasis*, \, `"),
        (r"*C:\dir\a* and **\n**", r"C:\dir\a and \n"),
        (r"`C:\_dir\*` stays", r"`C:\_dir\*` stays"),
        (r"- item C:\temp", r"• item C:\temp"),
        (r"> quote C:\temp", r"│ quote C:\temp"),
        (r"# Head \d+", r"# Head \d+"),
        (r"ends in \", r"ends in \"),
        (r"\[a\](b) \d{3} \$1", r"[a](b) \d{3} $1"),
        ("    C:\\_code\\*", "    C:\\_code\\*"),
        (r"[a](C:\dir\file)", r"a (C:\dir\file)"),
        (r"<C:\dir\file> and <a\b>", r"<C:\dir\file> and <a\b>"),
        (r"LaTeX \(a_1 + b\) and \[x\]", r"LaTeX (a_1 + b) and [x]"),
    ] {
        let lines = lines(source, Look::plain(80));
        let plain: Vec<String> = lines.iter().map(Line::plain).collect();
        assert_eq!(plain, [shown], "{source}");
        let mut stream = MarkdownStream::new(Look::plain(80));
        let mut streamed = String::new();
        for piece in source.split_inclusive('\\') {
            streamed.push_str(&stream.push(piece));
        }
        streamed.push_str(&stream.finish());
        assert_eq!(streamed, format!("{shown}\n"), "{source}");
    }
    let table = render(
        "| path | n |\n|---|---|\n| C:\\dir\\a | \\d\\|x |\n",
        Look::plain(60),
    );
    assert!(table.contains(r"C:\dir\a"), "{table}");
    assert!(table.contains(r"\d|x"), "{table}");
}
