//! Bars of parts, lying.
//!
//! Owns: where parts and their labels stand. Refuses to know: what they mean.

use super::{Canvas, Drawing, LEFT, RIGHT, TOP, fitted, sane, steps};

/// Colours of parts: not those of series, which mean something else.
const COLOURS: [&str; 5] = ["#e0a458", "#4f6d9a", "#8fb0d9", "#a8577e", "#9a9a9a"];

/// A bar and the space below it.
const BAR: f64 = 26.0;
const PITCH: f64 = 38.0;
/// Where bars begin: names stand before.
const BEGIN: f64 = LEFT + 40.0;

/// A bar per row, made of the same parts.
pub struct Stacks<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What the lengths mean.
    pub unit: &'a str,
    /// The parts' names.
    pub parts: &'a [&'a str],
    /// A name, and a length for each part.
    pub rows: &'a [(String, Vec<f64>)],
}

impl Stacks<'_> {
    /// The drawing.
    pub fn draw(&self) -> Drawing {
        let bottom = TOP + PITCH * self.rows.len() as f64;
        let mut canvas = Canvas::blank(self.title, bottom + 60.0);
        let total = |values: &[f64]| -> f64 { values.iter().map(|&v| sane(v)).sum() };
        let steps = steps(self.rows.iter().map(|row| total(&row.1)).fold(0.0, f64::max));
        let most = steps.last().copied().unwrap_or(1.0);
        let x = |value: f64| BEGIN + (RIGHT - BEGIN) * (sane(value) / most).min(1.0);
        for &value in &steps {
            canvas.line("grid", (x(value), TOP - 6.0), (x(value), bottom));
            canvas.text((x(value), bottom + 18.0), "middle", &super::label(value));
        }
        canvas.legend(self.parts.iter().zip(COLOURS.iter().cycle()).map(|(&name, &colour)| (name, colour)));
        for (r, (name, values)) in self.rows.iter().enumerate() {
            let y = TOP + PITCH * r as f64;
            canvas.text((BEGIN - 8.0, y + 18.0), "end", &fitted(name, BEGIN - 16.0));
            let mut begin = 0.0;
            for ((&value, part), colour) in values.iter().zip(self.parts).zip(COLOURS.iter().cycle()) {
                let end = begin + sane(value);
                let tip = format!("{name}, {part}: {:.1}", sane(value));
                canvas.rect(colour, (x(begin), y), (x(end) - x(begin), BAR), &tip);
                begin = end;
            }
            canvas.text((x(begin) + 6.0, y + 18.0), "start", &format!("{begin:.0}"));
        }
        canvas.line("axis", (BEGIN, TOP - 6.0), (BEGIN, bottom));
        canvas.text(((BEGIN + RIGHT) / 2.0, bottom + 44.0), "middle", self.unit);
        canvas.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_well_formed;
    use super::*;

    #[test]
    fn stacks_are_well_formed_whatever_the_values() {
        for values in [vec![1.0, 99.0], vec![0.0, 0.0], vec![f64::NAN, f64::INFINITY], vec![-5.0, 1e9]] {
            let rows = [("a & b".to_owned(), values.clone()), ("c".to_owned(), values)];
            assert_well_formed(&Stacks { title: "t", unit: "u<", parts: &["x", "y>"], rows: &rows }.draw());
        }
        assert_well_formed(&Stacks { title: "t", unit: "u", parts: &[], rows: &[] }.draw());
    }
}
