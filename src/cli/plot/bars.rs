//! Bars in groups.
//!
//! Owns: where bars and their labels stand. Refuses to know: what they mean.

use super::{BOTTOM, COLOURS, Canvas, Drawing, LEFT, RIGHT, TOP, escaped, fitted, sane};

/// A label of a bar that is narrower than this stands upright...
const NARROW: f64 = 30.0;
/// ...and one narrower than this has none.
const THIN: f64 = 11.0;

/// A height that is marked by a dashed line.
pub struct Mark {
    /// Where.
    pub height: f64,
    /// What it is, in one or two words.
    pub name: &'static str,
}

/// One group per task, one bar in it per series.
pub struct Bars<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What the groups are; nothing if their names say it.
    pub x: &'a str,
    /// What the heights mean.
    pub unit: &'a str,
    /// Digits behind the point of the heights.
    pub digits: usize,
    /// The names of the bars in each group, and the number of their colour.
    pub series: &'a [(String, usize)],
    /// A name, and a height for each series; NaN where there is none.
    pub groups: &'a [(String, Vec<f64>)],
    /// Heights to compare with.
    pub marks: &'a [Mark],
}

impl Bars<'_> {
    /// The drawing.
    pub fn draw(&self) -> Drawing {
        let heights = self.groups.iter().flat_map(|g| &g.1).chain(self.marks.iter().map(|m| &m.height));
        let highest = heights.map(|&v| sane(v)).fold(0.0, f64::max);
        let mut canvas = Canvas::with_axes(self.title, self.unit, highest * 1.05);
        canvas.legend(self.series.iter().map(|(name, colour)| (name.as_str(), COLOURS[colour % COLOURS.len()])));
        let group = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        let bar = group * 0.8 / self.series.len().max(1) as f64;
        for (g, (name, values)) in self.groups.iter().enumerate() {
            let left = LEFT + g as f64 * group;
            for (i, (series, &value)) in self.series.iter().zip(values).enumerate().filter(|(_, bar)| !bar.1.is_nan()) {
                let x = left + group * 0.1 + i as f64 * bar;
                self.bar(&mut canvas, (x, bar), (series, value), name);
            }
            canvas.text((left + group / 2.0, BOTTOM + 22.0), "middle", &fitted(name, group));
        }
        canvas.text(((LEFT + RIGHT) / 2.0, BOTTOM + 48.0), "middle", self.x);
        for mark in self.marks {
            let y = canvas.y(mark.height);
            canvas.line("mark", (LEFT, y), (RIGHT, y));
            canvas.text(
                (RIGHT + 6.0, y + 4.0),
                "start",
                &format!("{} {:.*}", mark.name, self.digits, sane(mark.height)),
            );
        }
        canvas.finish()
    }

    /// A bar of a series in a group, and its height as a label.
    fn bar(&self, canvas: &mut Canvas, (x, width): (f64, f64), (series, value): (&(String, usize), f64), group: &str) {
        let y = canvas.y(value);
        let label = format!("{:.*}", self.digits, sane(value));
        let tip = format!("{group}, {}: {label}", series.0);
        canvas.rect(COLOURS[series.1 % COLOURS.len()], (x, y), (width * 0.88, BOTTOM - y), &tip);
        let (x, y, label) = (x + width * 0.44, (y - 5.0).max(TOP - 8.0), escaped(&label));
        if width >= NARROW {
            canvas
                .push(format!("<text class=\"small\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>"));
        } else if width >= THIN {
            let at = format!("translate({:.1} {y:.1}) rotate(-90)", x + 4.0);
            canvas.push(format!("<text class=\"small\" transform=\"{at}\">{label}</text>"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_well_formed;
    use super::*;

    #[test]
    fn bars_are_well_formed_whatever_the_values_and_names() {
        let series = [("suffix".to_owned(), 0), ("a<b>&\"c\"\u{0}".to_owned(), 9)];
        let marks = [Mark { height: 1.0, name: "plain" }, Mark { height: f64::NAN, name: "<odd>" }];
        for values in [vec![1.5, 3.0], vec![0.0, f64::NAN], vec![f64::INFINITY, 1e9], vec![-1.0, 1e-9]] {
            for groups in [2, 40, 400] {
                let name = |i| if i == 0 { "quote & list".to_owned() } else { "x".to_owned() };
                let groups: Vec<_> = (0..groups).map(|i| (name(i), values.clone())).collect();
                let bars = Bars {
                    title: "t<",
                    x: "x<",
                    unit: "u>",
                    digits: 2,
                    series: &series,
                    groups: &groups,
                    marks: &marks,
                };
                let drawing = bars.draw();
                assert_well_formed(&drawing);
                let tips = drawing.file().matches("list, a&lt;b&gt;&amp;&quot;c&quot;: ").count();
                assert_eq!(tips, usize::from(!values[1].is_nan()), "no bar where there is no height");
            }
        }
        assert_well_formed(
            &Bars { title: "", x: "", unit: "", digits: 0, series: &[], groups: &[], marks: &[] }.draw(),
        );
    }
}
