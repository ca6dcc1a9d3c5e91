//! Where things stand, and the SVG they become.
//!
//! A session is a stack of boxes around one middle line; subagents stand in rows between two boxes of
//! their parent: in one row while there is room, else in a grid. Blocks are measured from the inside
//! out and placed from the outside in, so nothing overlaps and no line crosses a box.

mod canvas;

use super::words::Type;
use crate::text;
use canvas::{Canvas, escape};
use std::cell::OnceCell;
use std::fmt::Write as _;

/// The width that a run is laid out for. Beyond it a screen shows boxes, or the whole, but not both.
pub(super) const WIDEST: f64 = 2_400.0;
const BOX: f64 = 236.0;
const PAD: f64 = 12.0;
const GAP: f64 = 26.0;
/// Between subagents, and around a frame.
const MARGIN: f64 = 18.0;
const TITLE_HEIGHT: f64 = 16.0;
const LINE_HEIGHT: f64 = 13.5;
const HEADING: Type = Type {
    size: 16.0,
    bold: true,
};
const HEADING_HEIGHT: f64 = 20.0;
const HEADING_LINES: usize = 2;
const NAME: Type = Type {
    size: 12.0,
    bold: true,
};
const SMALL: Type = Type {
    size: 10.5,
    bold: false,
};
const TITLE_LINES: usize = 3;
/// Below the title; what a box is given beyond them is only in its tooltip.
const LINES: usize = 20;
/// Down to the first box, under a heading of one line.
const HEADER: f64 = 58.0;
/// Above so many blocks they wrap into rows.
const ONE_ROW: usize = 6;
const MOST_COLUMNS: usize = 12;

/// What a box is, for its colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Question,
    Decision,
    Tool,
    Fan,
    Note,
    Answer,
    Partial,
    Error,
    Wait,
    Open,
}

impl Class {
    const ALL: [Self; 10] = [
        Self::Question,
        Self::Decision,
        Self::Tool,
        Self::Fan,
        Self::Note,
        Self::Answer,
        Self::Partial,
        Self::Error,
        Self::Wait,
        Self::Open,
    ];

    /// Name, and fill, stroke in light, fill, stroke in dark.
    fn looks(self) -> (&'static str, [&'static str; 4]) {
        match self {
            Self::Question => ("question", ["#dbeafe", "#2563eb", "#1e3a5f", "#60a5fa"]),
            Self::Decision => ("decision", ["#fef3c7", "#b45309", "#4a3410", "#f59e0b"]),
            Self::Tool => ("tool", ["#f3f4f6", "#6b7280", "#2d333b", "#9ca3af"]),
            Self::Fan => ("fan", ["#ede9fe", "#7c3aed", "#3b2a63", "#a78bfa"]),
            Self::Note => ("note", ["#ecfeff", "#0e7490", "#123f4a", "#22d3ee"]),
            Self::Answer => ("answer", ["#dcfce7", "#15803d", "#14432a", "#4ade80"]),
            Self::Partial => ("partial", ["#ffedd5", "#c2410c", "#54290f", "#fb923c"]),
            Self::Error => ("error", ["#fee2e2", "#b91c1c", "#551a1a", "#f87171"]),
            Self::Wait => ("wait", ["#fce7f3", "#be185d", "#4f1735", "#f472b6"]),
            Self::Open => ("open", ["#ffffff", "#9ca3af", "#161b22", "#6b7280"]),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Square,
    Round,
}

/// One box.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub class: Class,
    pub shape: Shape,
    pub title: String,
    /// Below the title: a text, and the most lines it may take.
    lines: Vec<(String, usize)>,
    pub tooltip: Vec<String>,
    /// Title and lines as they stand in the box, once somebody asked.
    set: OnceCell<[Vec<String>; 2]>,
}

impl Leaf {
    pub(super) fn new(class: Class, title: &str) -> Self {
        let title = text::one_line(title);
        Self {
            class,
            shape: Shape::Square,
            title,
            lines: Vec::new(),
            tooltip: Vec::new(),
            set: OnceCell::new(),
        }
    }

    /// Adds a text below the title that takes at most so many lines.
    pub(super) fn say(&mut self, text: impl Into<String>, most: usize) {
        self.lines.push((text.into(), most));
    }

    /// Takes over what another box says below its title.
    pub(super) fn say_as(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// Title and lines, broken so that they fit.
    fn set(&self) -> &[Vec<String>; 2] {
        self.set.get_or_init(|| {
            let room = BOX - 2.0 * PAD;
            let lines = self.lines.iter();
            let lines = lines.flat_map(|(text, most)| SMALL.wrapped(text, room, *most));
            [
                NAME.wrapped(&self.title, room, TITLE_LINES),
                lines.take(LINES).collect(),
            ]
        })
    }

    fn height(&self) -> f64 {
        let [titles, lines] = self.set();
        2.0 * PAD - 4.0 + TITLE_HEIGHT * titles.len() as f64 + LINE_HEIGHT * lines.len() as f64
    }
}

/// A part of the picture.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Leaf(Leaf),
    /// One below the other. `joins`: whether what follows its fan-out rests on it.
    Stack {
        items: Vec<Block>,
        framed: bool,
        joins: bool,
    },
    /// Subagents of a fan-out.
    Rows(Rows),
    /// Subagents whose fan-out is not known.
    Side(Rows),
}

/// Subagents beside and below each other.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    blocks: Vec<Block>,
    columns: usize,
}

impl Rows {
    pub(super) fn new(blocks: Vec<Block>) -> Self {
        let columns = if blocks.len() <= ONE_ROW {
            ONE_ROW
        } else {
            let root = (blocks.len() as f64).sqrt().ceil() as usize;
            root.clamp(ONE_ROW, MOST_COLUMNS)
        };
        Self { blocks, columns }
    }

    fn rows(&self) -> impl Iterator<Item = &[Block]> {
        self.blocks.chunks(self.columns)
    }

    /// Whether lines go to the frame around them, and not to each.
    fn is_grid(&self) -> bool {
        self.blocks.len() > self.columns.min(ONE_ROW)
    }

    fn frame(&self) -> f64 {
        if self.is_grid() { 2.0 * MARGIN } else { 0.0 }
    }

    fn size(&self) -> (f64, f64) {
        let (mut width, mut height) = (0.0_f64, 0.0);
        for (position, row) in self.rows().enumerate() {
            let sizes: Vec<_> = row.iter().map(Block::size).collect();
            let row_width: f64 = sizes.iter().map(|(w, _)| w + MARGIN).sum::<f64>() - MARGIN;
            let row_height = sizes.iter().map(|(_, h)| *h).fold(0.0, f64::max);
            width = width.max(row_width);
            height += row_height + if position > 0 { MARGIN } else { 0.0 };
        }
        // Room for the lines that branch off above and come together below.
        (width + self.frame(), height + self.frame() + 2.0 * MARGIN)
    }

    /// Puts so many beside each other as there is room for, and shares the room among them.
    fn fit(&mut self, room: f64) {
        let narrowest = self.blocks.iter().map(Block::narrowest).fold(0.0, f64::max);
        let inner = room - 2.0 * MARGIN;
        let most = ((inner + MARGIN) / (narrowest + MARGIN)) as usize;
        let most = most.clamp(1, self.columns);
        // As many rows as it takes, with as many in each.
        let rows = self.blocks.len().div_ceil(most).max(1);
        self.columns = self.blocks.len().div_ceil(rows).max(1);
        let share = (inner + MARGIN) / self.columns as f64 - MARGIN;
        for block in &mut self.blocks {
            block.fit(share);
        }
    }
}

impl Block {
    fn size(&self) -> (f64, f64) {
        match self {
            Self::Leaf(leaf) => (BOX, leaf.height()),
            Self::Stack { items, framed, .. } => {
                let (mut width, mut height) = (0.0_f64, 0.0);
                for (position, item) in items.iter().enumerate() {
                    let (w, h) = item.size();
                    width = width.max(w);
                    height += h + if position > 0 { GAP } else { 0.0 };
                }
                let frame = if *framed { 2.0 * MARGIN } else { 0.0 };
                (width + frame, height + frame)
            }
            Self::Rows(rows) | Self::Side(rows) => rows.size(),
        }
    }

    /// How wide it is with everything below each other.
    fn narrowest(&self) -> f64 {
        match self {
            Self::Leaf(_) => BOX,
            Self::Stack { items, framed, .. } => {
                let frame = if *framed { 2.0 * MARGIN } else { 0.0 };
                items.iter().map(Self::narrowest).fold(0.0, f64::max) + frame
            }
            Self::Rows(Rows { blocks, .. }) | Self::Side(Rows { blocks, .. }) => {
                let frame = if blocks.len() > 1 { 2.0 * MARGIN } else { 0.0 };
                blocks.iter().map(Self::narrowest).fold(0.0, f64::max) + frame
            }
        }
    }

    /// Lays it out anew where it is wider than `room`.
    fn fit(&mut self, room: f64) {
        if self.size().0 <= room {
            return;
        }
        match self {
            Self::Leaf(_) => {}
            Self::Stack { items, framed, .. } => {
                let frame = if *framed { 2.0 * MARGIN } else { 0.0 };
                for item in items {
                    item.fit(room - frame);
                }
            }
            Self::Rows(rows) | Self::Side(rows) => rows.fit(room),
        }
    }

    fn joins(&self) -> bool {
        match self {
            Self::Leaf(_) => true,
            Self::Stack { joins, .. } => *joins,
            Self::Rows(rows) => rows.blocks.iter().any(Self::joins),
            Self::Side(_) => false,
        }
    }
}

/// Whether one of the blocks is wider than a picture is to be.
pub(super) fn is_too_wide(blocks: &[Block]) -> bool {
    blocks.iter().any(|block| block.size().0 > WIDEST)
}

/// Draws blocks side by side under a heading.
pub(super) fn draw(title: &str, about: &str, mut blocks: Vec<Block>) -> String {
    for block in &mut blocks {
        block.fit(WIDEST);
    }
    let sizes: Vec<_> = blocks.iter().map(Block::size).collect();
    let inner: f64 = sizes.iter().map(|(w, _)| w + 2.0 * MARGIN).sum::<f64>();
    let about_width = SMALL.width(about);
    let width = (inner.max(about_width) + 2.0 * MARGIN).max(420.0).ceil();
    let headings = HEADING.wrapped(title, width - 2.0 * MARGIN, HEADING_LINES);
    let below = HEADING_HEIGHT * headings.len().saturating_sub(1) as f64;
    let header = HEADER + below;
    let height = sizes.iter().map(|(_, h)| *h).fold(0.0, f64::max) + header + 2.0 * MARGIN;
    let mut canvas = Canvas::default();
    let mut x = (width - inner) / 2.0 + MARGIN;
    for (block, (w, _)) in blocks.iter().zip(&sizes) {
        canvas.place(block, x + w / 2.0, header);
        x += w + 2.0 * MARGIN;
    }
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape(title)
    );
    let _ = writeln!(out, "<title>{}</title>", escape(title));
    out.push_str(&style());
    out.push_str(
        "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path class=\"head\" d=\"M0,0 L8,4 L0,8 z\"/></marker>\
         </defs>\n",
    );
    let _ = writeln!(
        out,
        "<rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>"
    );
    let mut baseline = 26.0;
    for line in headings {
        let _ = writeln!(
            out,
            "<text class=\"heading\" x=\"{MARGIN}\" y=\"{baseline}\">{}</text>",
            escape(&line)
        );
        baseline += HEADING_HEIGHT;
    }
    let _ = writeln!(
        out,
        "<text class=\"small\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
        44.0 + below,
        escape(about)
    );
    out.push_str(&canvas.frames);
    out.push_str(&canvas.lines);
    out.push_str(&canvas.boxes);
    out.push_str("</svg>\n");
    out
}

fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (name, [fill, stroke, dark_fill, dark_stroke]) in Class::ALL.map(Class::looks) {
        let _ = writeln!(light, ".{name}{{fill:{fill};stroke:{stroke}}}");
        let _ = writeln!(dark, ".{name}{{fill:{dark_fill};stroke:{dark_stroke}}}");
    }
    format!(
        "<style>\n\
         text{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;\
         fill:#111827}}\n\
         .heading{{font-size:16px;font-weight:600}}\n\
         .name{{font-size:12px;font-weight:600}}\n\
         .small{{font-size:10.5px;fill:#4b5563}}\n\
         .page{{fill:#ffffff}}\n\
         .frame{{fill:none;stroke:#d1d5db}}\n\
         .line{{fill:none;stroke:#6b7280;stroke-width:1.2}}\n\
         .dotted{{stroke-dasharray:4 4}}\n\
         .head{{fill:#6b7280}}\n\
         .open{{stroke-dasharray:4 3}}\n\
         {light}\
         @media (prefers-color-scheme:dark){{\n\
         text{{fill:#e5e7eb}}\n\
         .small{{fill:#9ca3af}}\n\
         .page{{fill:#0d1117}}\n\
         .frame{{stroke:#30363d}}\n\
         .line{{stroke:#8b949e}}\n\
         .head{{fill:#8b949e}}\n\
         {dark}}}\n\
         </style>\n"
    )
}
