//! Drawings: grouped bars, lines and stacked bars, as SVG that reads well on light and dark pages.
//!
//! Owns: layout, axes, colours, escaping. Refuses to know: what is drawn, and where it is kept.

mod bars;
mod lines;
mod stacks;

use std::fmt::Write;

pub use bars::{Bars, Mark};
pub use lines::{Lines, Series};
pub use stacks::Stacks;

/// A drawing's width, and the area inside its axes.
const WIDTH: f64 = 840.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 350.0;
/// The height of a drawing whose axes end at [`BOTTOM`].
const HEIGHT: f64 = 420.0;
/// Where the title ends: drawings in a page begin here, since the page has headings.
const BELOW_TITLE: f64 = 36.0;

/// Colours of series, chosen to be told apart on white and on black; used in turn.
const COLOURS: [&str; 6] = ["#3b82d6", "#d9822b", "#2f9e6e", "#b0559e", "#c94f4f", "#7a7f29"];

/// Text and axes follow the page: dark on light, light on dark. A page that holds drawings has these rules.
pub const RULES: &str = "\
    text{font:13px sans-serif;fill:#222}.title{font-size:16px}.small{font-size:11px}.axis{stroke:#222;fill:none}\
    .grid{stroke:#8884;fill:none}.paper{fill:#fff}.mark{stroke:#777;stroke-dasharray:5 4;fill:none}\
    @media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#ddd}.paper{fill:#16181c}.mark{stroke:#aaa}}";

/// `text` with the characters escaped that mean something in XML; characters that XML does not allow are dropped.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}') => {}
            c => out.push(c),
        }
    }
    out
}

/// A round step that divides `0..=most` into two to eight parts.
fn step(most: f64) -> f64 {
    let decade = 10f64.powf((most / 10.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0].map(|s| s * decade);
    steps.into_iter().find(|s| most / s <= 8.0).unwrap_or(most)
}

/// The steps of an axis that reaches `highest`: 0, one step, two..., the last at or above it.
fn steps(highest: f64) -> Vec<f64> {
    let highest = sane(highest).max(1.0);
    let step = step(highest);
    (0..=(highest / step * 0.9999).ceil() as usize).map(|i| i as f64 * step).collect()
}

/// A number on an axis.
fn label(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}

/// Finite and not negative, whatever was measured.
fn sane(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// `text`, cut to what has room in `width`.
fn fitted(text: &str, width: f64) -> String {
    let most = (width / 7.0).max(2.0) as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A finished drawing.
pub struct Drawing {
    title: String,
    height: f64,
    /// What is drawn, without the title.
    body: String,
}

impl Drawing {
    /// A file of its own.
    pub fn file(&self) -> String {
        let (title, height) = (escaped(&self.title), self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
             <title>{title}</title>\n<style>{RULES}</style>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"28\">{title}</text>\n{}</svg>\n",
            self.body
        )
    }

    /// A part of a page that has [`RULES`] and a heading for it.
    pub fn inline(&self) -> String {
        format!(
            "<svg viewBox=\"0 {BELOW_TITLE} {WIDTH} {}\" role=\"img\">\n<title>{}</title>\n{}</svg>\n",
            self.height - BELOW_TITLE,
            escaped(&self.title),
            self.body
        )
    }
}

/// A drawing under way.
struct Canvas {
    drawing: Drawing,
    /// The value at the top of the y axis.
    most: f64,
}

impl Canvas {
    /// Nothing drawn yet.
    fn blank(title: &str, height: f64) -> Canvas {
        Canvas { drawing: Drawing { title: title.to_owned(), height, body: String::new() }, most: 1.0 }
    }

    /// The axes, y up to `highest` at least.
    fn with_axes(title: &str, unit: &str, highest: f64) -> Canvas {
        let mut canvas = Canvas::blank(title, HEIGHT);
        let steps = steps(highest);
        canvas.most = steps.last().copied().unwrap_or(1.0);
        for value in steps {
            let y = canvas.y(value);
            canvas.line("grid", (LEFT, y), (RIGHT, y));
            canvas.text((LEFT - 8.0, y + 4.0), "end", &label(value));
        }
        let at = format!("translate(22 {}) rotate(-90)", (TOP + BOTTOM) / 2.0);
        let unit = escaped(unit);
        canvas.push(format!("<text text-anchor=\"middle\" transform=\"{at}\">{unit}</text>"));
        canvas.line("axis", (LEFT, TOP), (LEFT, BOTTOM));
        canvas.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        canvas
    }

    /// A legend: names behind squares of their colours.
    fn legend<'a>(&mut self, names: impl Iterator<Item = (&'a str, &'a str)>) -> f64 {
        let mut x = LEFT;
        for (name, colour) in names {
            self.rect(colour, (x, 44.0), (12.0, 12.0), "");
            self.text((x + 18.0, 55.0), "start", name);
            x += 34.0 + 8.0 * name.chars().count() as f64;
        }
        x
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (sane(value) / self.most).min(1.0)
    }

    fn push(&mut self, element: String) {
        let _ = writeln!(self.drawing.body, "{element}");
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"));
    }

    /// `anchor` is what (x, y) is of the text: its start, middle or end.
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escaped(text);
        self.push(format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    /// A rectangle that says `tip` when it is pointed at.
    fn rect(&mut self, colour: &str, (x, y): (f64, f64), (width, height): (f64, f64), tip: &str) {
        let tip = escaped(tip);
        self.push(format!(
            "<rect fill=\"{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{tip}</title></rect>"
        ));
    }

    fn finish(self) -> Drawing {
        self.drawing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tag is closed in order, attributes are quoted, and no number is NaN or infinite.
    pub(super) fn assert_well_formed(drawing: &Drawing) {
        for svg in [drawing.file(), drawing.inline()] {
            let mut open = Vec::new();
            for part in svg.split('<').skip(1) {
                let (tag, text) = part.split_once('>').unwrap();
                assert!(!text.contains('>'), "{part}");
                assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                let name = tag.split([' ', '/']).next().unwrap();
                match (tag.strip_prefix('/'), tag.ends_with('/')) {
                    (Some(closed), _) => assert_eq!(open.pop(), Some(closed)),
                    (None, true) => {}
                    (None, false) => open.push(name),
                }
            }
            assert!(open.is_empty() && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn an_axis_has_a_few_round_steps_and_reaches_the_highest_value() {
        for most in [1.0, 1.05, 1.3, 2.0, 3.7, 9.0, 33.0, 64.0, 100.0, 1e6] {
            let steps = steps(most);
            assert!((3..=9).contains(&steps.len()), "{most}: {steps:?}");
            let (last, step) = (steps[steps.len() - 1], steps[1]);
            assert!(last >= most * 0.999 && last - step < most, "{most}: {steps:?}");
        }
        assert_eq!(steps(100.0).last(), Some(&100.0));
        for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert_eq!(steps(odd).last(), Some(&1.0));
        }
    }

    #[test]
    fn a_long_name_is_cut_to_its_room() {
        assert_eq!((fitted("quote", 70.0), fitted("a long name", 70.0)), ("quote".into(), "a long na…".into()));
        assert_eq!(fitted("abc", 0.0), "a…");
    }
}
