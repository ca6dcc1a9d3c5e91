//! Placed blocks, as SVG.

use super::super::TOOLTIP;
use super::{BOX, Block, GAP, LINE_HEIGHT, Leaf, MARGIN, PAD, Rows, Shape, TITLE_HEIGHT};
use crate::text;
use std::fmt::Write as _;

#[derive(Default)]
pub(super) struct Canvas {
    pub(super) frames: String,
    pub(super) lines: String,
    pub(super) boxes: String,
}

impl Canvas {
    /// Places a block with its middle at `x` and its top at `y`.
    pub(super) fn place(&mut self, block: &Block, x: f64, y: f64) {
        match block {
            Block::Leaf(leaf) => self.leaf(leaf, x, y),
            Block::Stack { items, framed, .. } => {
                let mut top = y;
                if *framed {
                    let (width, height) = block.size();
                    self.frame(x - width / 2.0 + 4.0, y + 4.0, width - 8.0, height - 8.0);
                    top += MARGIN;
                }
                for (position, item) in items.iter().enumerate() {
                    let (_, height) = item.size();
                    if position > 0 {
                        self.between(&items[position - 1], item, x, top - GAP);
                    }
                    self.place(item, x, top);
                    top += height + GAP;
                }
            }
            Block::Rows(rows) => self.rows(rows, false, x, y),
            Block::Side(rows) => self.rows(rows, true, x, y),
        }
    }

    /// The line from one item of a stack to the next. Rows draw their own.
    pub(super) fn between(&mut self, above: &Block, below: &Block, x: f64, y: f64) {
        let branches = |block: &Block| matches!(block, Block::Rows(_) | Block::Side(_));
        if branches(below) {
            // From the box to the line that branches.
            self.path(&format!("M{x:.1},{y:.1} V{:.1}", y + GAP), false, false);
        } else {
            let dotted = !above.joins();
            self.path(
                &format!("M{x:.1},{y:.1} V{:.1}", y + GAP - 2.0),
                dotted,
                true,
            );
        }
    }

    pub(super) fn rows(&mut self, rows: &Rows, side: bool, x: f64, y: f64) {
        let (width, height) = rows.size();
        let grid = rows.is_grid();
        let mut top = y + MARGIN;
        if grid {
            self.frame(
                x - width / 2.0 + 4.0,
                top - 6.0,
                width - 8.0,
                height - 2.0 * MARGIN + 12.0,
            );
            self.path(&format!("M{x:.1},{y:.1} V{:.1}", top - 8.0), false, true);
            top += MARGIN;
        }
        let bottom = y + height;
        for row in rows.rows() {
            let sizes: Vec<_> = row.iter().map(Block::size).collect();
            let row_width: f64 = sizes.iter().map(|(w, _)| w + MARGIN).sum::<f64>() - MARGIN;
            let row_height = sizes.iter().map(|(_, h)| *h).fold(0.0, f64::max);
            let mut left = x - row_width / 2.0;
            for (block, (w, h)) in row.iter().zip(&sizes) {
                let middle = left + w / 2.0;
                self.place(block, middle, top);
                if !grid {
                    let inset = if matches!(block, Block::Stack { framed: true, .. }) {
                        MARGIN
                    } else {
                        0.0
                    };
                    let down = top + inset - 2.0;
                    let into = format!("M{x:.1},{y:.1} H{middle:.1} V{down:.1}");
                    self.path(&into, side, true);
                    if block.joins() && !side {
                        let from = top + h - inset;
                        let out = format!("M{middle:.1},{from:.1} V{bottom:.1} H{x:.1}");
                        self.path(&out, false, false);
                    }
                }
                left += w + MARGIN;
            }
            top += row_height + MARGIN;
        }
        if grid && !side {
            let from = bottom - MARGIN + 6.0;
            self.path(&format!("M{x:.1},{from:.1} V{bottom:.1}"), false, false);
        }
    }

    pub(super) fn path(&mut self, d: &str, dotted: bool, arrow: bool) {
        let class = if dotted { "line dotted" } else { "line" };
        let marker = if arrow {
            " marker-end=\"url(#arrow)\""
        } else {
            ""
        };
        let _ = writeln!(self.lines, "<path class=\"{class}\" d=\"{d}\"{marker}/>");
    }

    pub(super) fn frame(&mut self, x: f64, y: f64, width: f64, height: f64) {
        let _ = writeln!(
            self.frames,
            "<rect class=\"frame\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\" rx=\"10\"/>"
        );
    }

    pub(super) fn leaf(&mut self, leaf: &Leaf, x: f64, y: f64) {
        let left = x - BOX / 2.0;
        let height = leaf.height();
        let round = match leaf.shape {
            Shape::Square => 5.0,
            Shape::Round => 16.0,
        };
        let tooltip: Vec<String> = std::iter::once(leaf.title.clone())
            .chain(leaf.tooltip.iter().map(|part| shortened(part)))
            .filter(|part| !part.is_empty())
            .collect();
        let _ = writeln!(
            self.boxes,
            "<g><title>{}</title><rect class=\"{}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{BOX}\" \
             height=\"{height:.1}\" rx=\"{round}\"/>",
            escape(&tooltip.join("\n")),
            leaf.class.looks().0,
        );
        let mut baseline = y + PAD + 8.0;
        let [titles, lines] = leaf.set();
        for line in titles {
            let _ = writeln!(
                self.boxes,
                "<text class=\"name\" x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
                left + PAD,
                escape(line)
            );
            baseline += TITLE_HEIGHT;
        }
        baseline -= 2.0;
        for line in lines {
            let _ = writeln!(
                self.boxes,
                "<text class=\"small\" x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
                left + PAD,
                escape(line)
            );
            baseline += LINE_HEIGHT;
        }
        self.boxes.push_str("</g>\n");
    }
}

/// A part of a tooltip: its lines kept, its length bounded.
fn shortened(part: &str) -> String {
    let clean = text::clean(part);
    let clean = clean.trim();
    let end = clean.floor_char_boundary(TOOLTIP);
    if end < clean.len() {
        format!("{}{}", &clean[..end], text::ELLIPSIS)
    } else {
        clean.to_owned()
    }
}

/// Text as XML may hold it.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text::clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // No XML document may hold these two, not even as references.
            '\u{fffe}' | '\u{ffff}' => {}
            c => out.push(c),
        }
    }
    out
}
