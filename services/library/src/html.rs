//! HTML to titled passages, from the tokens alone.
//!
//! No tree is built: loaded pages may be of any size and depth, and a tree walk is bounded by the
//! stack. The price is that an element left unclosed inside a skipped one could hide what follows,
//! so a page that yields nothing is read again without skipping navigation.

mod elements;

use super::format::{Halt, Parsed};
use super::guard::Patience;
use super::outline::{Outline, item_mark, one_line, table_row};
use super::passage::{ROW, code};
use elements::{
    BLOCKS, NAVIGATION, NAVIGATION_CLASSES, NAVIGATION_ROLES, NEVER_READ, VOID, attribute,
    heading_level, pieces, raw_text,
};
use html5ever::TokenizerResult;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use std::cell::RefCell;

/// Reads a whole page.
pub(crate) fn parse(text: &str) -> Result<Parsed, Halt> {
    let patience = Patience::of(text.len() as u64);
    parsed(&mut |skip_navigation| read(text, skip_navigation, &patience))
}

/// What the readings of a page come to. One that the clock stopped is the last.
fn parsed(read: &mut dyn FnMut(bool) -> Page) -> Result<Parsed, Halt> {
    let page = read(true);
    let page = if page.halt.is_some() || page.has_text(false) {
        page
    } else {
        read(false)
    };
    if let Some(halt) = page.halt {
        return Err(halt);
    }
    let title = one_line(&page.title);
    let only_main = page.has_text(true);
    let mut outline = Outline::default();
    for (item, _) in page
        .items
        .iter()
        .filter(|(_, in_main)| *in_main || !only_main)
    {
        item.add_to(&mut outline);
    }
    Ok(outline.into_parsed(None, (!title.is_empty()).then_some(title)))
}

/// The headings and blocks of a piece of HTML.
pub(crate) fn fragment(text: &str) -> Vec<Item> {
    read(text, false, &Patience::of(text.len() as u64))
        .items
        .into_iter()
        .map(|(item, _)| item)
        .collect()
}

/// The text of a page as lines, navigation included.
pub fn plain(text: &str) -> String {
    let lines = fragment(text).into_iter().map(|item| match item {
        Item::Heading(_, text) | Item::Block(text) => text,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Its level, 1 at the top, and its text.
    Heading(usize, String),
    Block(String),
}

impl Item {
    pub(crate) fn add_to(&self, outline: &mut Outline) {
        match self {
            Self::Heading(level, text) => outline.heading(*level, text),
            Self::Block(text) => outline.block(text),
        }
    }
}

fn read(text: &str, skip_navigation: bool, patience: &Patience) -> Page {
    let page = Page {
        skip_navigation,
        ..Page::default()
    };
    let tokenizer = Tokenizer::new(Sink(RefCell::new(page)), TokenizerOpts::default());
    let input = BufferQueue::default();
    // A tag with very many attributes takes the tokenizer long, so the clock is looked at often.
    let mut halt = None;
    for piece in pieces(text, 1 << 14) {
        halt = patience.check().err();
        if halt.is_some() {
            break;
        }
        input.push_back(StrTendril::from(piece));
        // It stops early only to let a caller run scripts or change the encoding.
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
    }
    tokenizer.end();
    let mut page = tokenizer.sink.0.into_inner();
    page.halt = halt;
    page.end_row();
    page.close_term();
    page.end_block();
    page.end_term();
    page
}

struct Sink(RefCell<Page>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut page = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => page.tag(&tag),
            Token::CharacterTokens(text) => {
                page.characters(&text);
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

/// An element whose end is waited for, with how many of its name are open inside it.
#[derive(Debug)]
struct Open {
    name: String,
    depth: usize,
}

impl Open {
    fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            depth: 1,
        }
    }

    /// Counts a tag; `true` if it is the end that is waited for.
    fn ends(&mut self, name: &str, opens: bool, starts: bool) -> bool {
        if self.name == name && opens {
            self.depth += 1;
        } else if self.name == name && !starts {
            self.depth -= 1;
        }
        self.depth == 0
    }
}

#[derive(Debug, Default)]
struct Table {
    header: Vec<String>,
    cells: Vec<String>,
    /// Whether every cell of the row so far is a heading, and whether the first one is.
    all_headings: bool,
    first_heading: bool,
    in_cell: bool,
}

/// What text belongs to, where that is not its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Body,
    Title,
    /// A term, whose definition follows.
    Term,
}

#[derive(Debug, Default)]
struct Page {
    /// Set where the page was not read to its end.
    halt: Option<Halt>,
    skip_navigation: bool,
    inside: Inside,
    title: String,
    /// Each with whether it stands in the main part, if the page names one.
    items: Vec<(Item, bool)>,
    in_main: Option<Open>,
    skipped: Option<Open>,
    heading: Option<usize>,
    text: String,
    pre: usize,
    block_is_pre: bool,
    mark: String,
    lists: Vec<Option<u64>>,
    tables: Vec<Table>,
}

impl Page {
    fn has_text(&self, only_main: bool) -> bool {
        self.items.iter().any(|(item, in_main)| {
            matches!(item, Item::Block(text) if !text.is_empty()) && (*in_main || !only_main)
        })
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let name: &str = &tag.name;
        let starts = tag.kind == TagKind::StartTag;
        let opens = starts && !tag.self_closing && !VOID.contains(&name);
        if let Some(open) = &mut self.skipped {
            if open.ends(name, opens, starts) {
                self.skipped = None;
            }
            return raw_text(name, starts);
        }
        if opens && self.is_skipped(name, tag) {
            self.skipped = Some(Open::of(name));
            return raw_text(name, starts);
        }
        self.follow_main(name, tag, opens, starts);
        if starts {
            self.start(name);
        } else {
            self.end(name);
        }
        raw_text(name, starts)
    }

    fn is_skipped(&self, name: &str, tag: &Tag) -> bool {
        if NEVER_READ.contains(&name) {
            return true;
        }
        let role = attribute(tag, "role").unwrap_or_default();
        let hidden = attribute(tag, "hidden").is_some();
        let mut classes = attribute(tag, "class")
            .unwrap_or_default()
            .split_whitespace();
        let leads_away = NAVIGATION.contains(&name)
            || NAVIGATION_ROLES.contains(&role)
            || classes.any(|class| NAVIGATION_CLASSES.contains(&class));
        // A page whose body carries such a mark is still to be read.
        let whole = matches!(name, "html" | "body" | "main");
        self.skip_navigation && !whole && (leads_away || hidden)
    }

    fn follow_main(&mut self, name: &str, tag: &Tag, opens: bool, starts: bool) {
        if let Some(open) = &mut self.in_main {
            if open.ends(name, opens, starts) {
                self.end_block();
                self.in_main = None;
            }
        } else if opens && (name == "main" || attribute(tag, "role") == Some("main")) {
            self.end_block();
            self.in_main = Some(Open::of(name));
        }
    }

    fn start(&mut self, name: &str) {
        if let Some(level) = heading_level(name) {
            self.leave_cell();
            self.end_block();
            self.heading = Some(level);
            return;
        }
        match name {
            "title" => self.inside = Inside::Title,
            "br" => self.text.push('\n'),
            "table" => {
                self.leave_cell();
                self.end_block();
                self.tables.push(Table::default());
            }
            "tr" => self.end_row(),
            "td" | "th" => self.start_cell(name == "th"),
            "caption" => self.end_block(),
            "li" => {
                self.separate();
                self.mark = item_mark(&mut self.lists);
            }
            "dt" => {
                self.close_term();
                self.separate();
                self.end_term();
                self.inside = Inside::Term;
            }
            _ if BLOCKS.contains(&name) => {
                if name == "dd" {
                    self.close_term();
                }
                self.separate();
                match name {
                    "ul" => self.lists.push(None),
                    "ol" => self.lists.push(Some(1)),
                    "pre" => self.pre += 1,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if heading_level(name).is_some() {
            self.end_block();
            self.heading = None;
            return;
        }
        match name {
            "title" => self.inside = Inside::Body,
            "table" => {
                self.end_row();
                self.end_block();
                self.tables.pop();
            }
            "tr" => self.end_row(),
            "td" | "th" => self.end_cell(),
            "caption" | "li" => self.separate(),
            "dt" => self.close_term(),
            _ if BLOCKS.contains(&name) => {
                self.separate();
                match name {
                    "ul" | "ol" => {
                        self.lists.pop();
                        self.mark.clear();
                    }
                    "dl" => {
                        self.close_term();
                        self.end_term();
                    }
                    "pre" => self.pre = self.pre.saturating_sub(1),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn characters(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.inside == Inside::Title {
            self.title.push_str(text);
        } else if self.pre > 0 {
            self.block_is_pre = true;
            self.text.push_str(text);
        } else {
            let plain = text
                .chars()
                .map(|c| if c.is_whitespace() { ' ' } else { c });
            self.text.extend(plain);
        }
    }

    /// Ends a block, or sets words apart where the block stands in a table cell.
    fn separate(&mut self) {
        if self.in_cell() {
            self.text.push(' ');
        } else {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let text = std::mem::take(&mut self.text);
        let is_pre = std::mem::take(&mut self.block_is_pre);
        if text.trim().is_empty() {
            return;
        }
        if let Some(level) = self.heading {
            // Generated pages end headings with a mark that links to them.
            let text = text.trim().trim_end_matches(['¶', '#', '§', '\u{f0c1}']);
            self.add(Item::Heading(level, one_line(text)));
            return;
        }
        let mark = std::mem::take(&mut self.mark);
        if is_pre {
            // Below its term or mark, so that its lines keep their places.
            if mark.chars().any(char::is_alphabetic) {
                self.add(Item::Block(mark.trim_end().to_owned()));
            }
            if let Some(block) = code(&text, "") {
                self.add(Item::Block(block));
            }
            return;
        }
        let lines: Vec<String> = text
            .lines()
            .map(one_line)
            .filter(|line| !line.is_empty())
            .collect();
        self.add(Item::Block(format!("{mark}{}", lines.join("\n"))));
    }

    /// A term goes in front of its definition.
    fn close_term(&mut self) {
        if self.inside != Inside::Term {
            return;
        }
        self.inside = Inside::Body;
        if !self.in_cell() {
            let term = one_line(&std::mem::take(&mut self.text));
            if !term.is_empty() {
                self.mark = format!("{term}: ");
            }
        }
    }

    /// A term without a definition stands alone.
    fn end_term(&mut self) {
        let mark = std::mem::take(&mut self.mark);
        if let Some(term) = mark.strip_suffix(": ") {
            self.add(Item::Block(term.to_owned()));
        }
    }

    fn add(&mut self, item: Item) {
        let in_main = self.in_main.is_some();
        self.items.push((item, in_main));
    }

    fn in_cell(&self) -> bool {
        self.tables.last().is_some_and(|table| table.in_cell)
    }

    fn start_cell(&mut self, heading: bool) {
        self.end_cell();
        self.end_block();
        if let Some(table) = self.tables.last_mut() {
            table.in_cell = true;
            if table.cells.is_empty() {
                table.all_headings = heading;
                table.first_heading = heading;
            }
            table.all_headings &= heading;
        }
    }

    fn end_cell(&mut self) {
        if !self.in_cell() {
            return;
        }
        let text = one_line(&std::mem::take(&mut self.text));
        self.block_is_pre = false;
        self.mark.clear();
        if let Some(table) = self.tables.last_mut() {
            table.in_cell = false;
            table.cells.push(text);
        }
    }

    /// A cell that holds headings or tables only arranges them: its row is given up as one.
    fn leave_cell(&mut self) {
        if self.in_cell() {
            self.end_row();
        }
    }

    fn end_row(&mut self) {
        self.end_cell();
        let Some(table) = self.tables.last_mut() else {
            return;
        };
        let cells = std::mem::take(&mut table.cells);
        if cells.iter().all(String::is_empty) {
            return;
        }
        if table.all_headings && cells.len() > 1 {
            table.header = cells;
            return;
        }
        let line = match cells.as_slice() {
            [name, value] if table.first_heading && table.header.is_empty() => {
                format!("{ROW}{name} = {value}")
            }
            _ => table_row(&table.header, &cells),
        };
        self.add(Item::Block(line));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(html: &str) -> Parsed {
        super::parse(html).unwrap()
    }

    fn texts(html: &str) -> Vec<String> {
        parse(html).passages.into_iter().map(|p| p.text).collect()
    }

    #[test]
    fn a_page_that_the_clock_stopped_is_not_read_again() {
        let stopped = |halt: bool| {
            let mut readings = 0;
            let parsed = parsed(&mut |_| {
                readings += 1;
                Page {
                    halt: halt
                        .then(|| Halt::unreadable("takes longer than 30 s to parse".to_owned())),
                    ..Page::default()
                }
            });
            (readings, parsed.is_err())
        };
        assert_eq!(stopped(true), (1, true));
        // One that yields nothing is read with its navigation, too.
        assert_eq!(stopped(false), (2, false));
    }

    #[test]
    fn a_page_becomes_headed_text_without_its_furniture() {
        let long = "word ".repeat(50);
        let page = format!(
            "<!doctype html><html><head><title>Site | Note</title><style>p{{}}</style></head>
             <body><nav><ul><li>Home</ul></nav><div role=navigation><div>deep</div></div>
             <h1>Credit note<a href=#x>¶</a></h1><p>Rated &lt;low&gt; &amp; falling.{long}</p>
             <script>if (a < b) {{ document.write('<p>no</p>') }}</script>
             <h2>Liquidity</h2><ul><li>one<li>two</ul><p>{long}<br>end</p><footer>(c)</footer>"
        );
        let parsed = parse(&page);
        assert_eq!(parsed.title.as_deref(), Some("Credit note"));
        let headings: Vec<_> = parsed.passages.iter().map(|p| p.heading.as_str()).collect();
        assert_eq!(headings, ["", "Liquidity"]);
        assert!(
            parsed.passages[0]
                .text
                .starts_with("Rated <low> & falling.word word")
        );
        assert!(parsed.passages[1].text.starts_with("- one\n- two\nword"));
        assert!(parsed.passages[1].text.ends_with("word\nend"));
        let all = parsed
            .passages
            .iter()
            .map(|p| p.text.as_str())
            .collect::<String>();
        for unread in ["Home", "deep", "document", "(c)", "p{}"] {
            assert!(!all.contains(unread), "{unread} in {all}");
        }
    }

    #[test]
    fn table_rows_repeat_their_column_names() {
        let page = "<table><tr><th>Ratio<th>2025<tr><td><p>Current</p><td>0.9</table>
                    <table><tr><th>Rating</th><td>B</td></tr></table>
                    <table><tr><td>a<td>b<td></table>";
        assert_eq!(
            texts(page),
            ["row: Ratio = Current; 2025 = 0.9\nrow: Rating = B\nrow: a | b"]
        );
    }

    #[test]
    fn only_the_main_part_is_read_where_a_page_names_one() {
        assert_eq!(
            texts("<div>Ad</div><main><p>News</p></main><div>Ad</div>"),
            ["News"]
        );
        assert_eq!(
            texts("<div>Ad</div><div role=main><div>x</div>News</div>Ad"),
            ["x\nNews"]
        );
        assert_eq!(texts("<p>News</p><main></main>"), ["News"]);
    }

    #[test]
    fn a_page_that_hides_everything_in_navigation_is_read_anyway() {
        assert_eq!(texts("<nav><p>All there is</p>"), ["All there is"]);
    }

    #[test]
    fn terms_stand_before_their_definitions() {
        let page = "<dl><dt>work_mem<dd><p>Memory of a sort.<p>More.<dt>alone<dt>port<dd><pre>a\nb</pre></dl><p>After";
        assert_eq!(
            texts(page),
            ["work_mem: Memory of a sort.\nMore.\nalone\nport:\n```\na\nb\n```\nAfter"]
        );
    }

    #[test]
    fn parts_that_generators_mark_as_navigation_are_left_out() {
        let page = "<div class='navheader'><table><tr><td>Prev<td>Next</table></div><div class='x toc'><dl><dt>1</dl></div>Text";
        assert_eq!(texts(page), ["Text"]);
    }

    #[test]
    fn code_keeps_its_lines() {
        assert_eq!(texts("<pre>a:\n  b\n\nc</pre>"), ["```\na:\n  b\nc\n```"]);
    }

    #[test]
    fn depth_and_broken_markup_do_no_harm() {
        let deep = "<div>".repeat(200_000) + "text";
        assert_eq!(texts(&deep), ["text"]);
        for broken in [
            "<",
            "</",
            "<p",
            "<!--",
            "<table><td>x",
            "</table></td>x",
            "<h1>x",
            "&#xFFFFFFFF;x",
        ] {
            parse(broken);
        }
        assert_eq!(texts("<title>T</title>"), Vec::<String>::new());
        assert_eq!(parse("<title>T</title>").title.as_deref(), Some("T"));
    }
}
