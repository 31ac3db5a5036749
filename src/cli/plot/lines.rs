//! Points joined by lines.
//!
//! Owns: where points and their labels stand. Refuses to know: what they mean.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{BOTTOM, COLOURS, Canvas, Drawing, LEFT, RIGHT, label, sane};

/// A line.
pub struct Series {
    /// Its name.
    pub name: String,
    /// (x, y), x ascending.
    pub points: Vec<(f64, f64)>,
}

/// Lines over the same axes.
pub struct Lines<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What x means.
    pub x: &'a str,
    /// What y means.
    pub y: &'a str,
    /// The highest y to have room for, at least.
    pub most: f64,
    /// What the dashed diagonal `y = x` means, if it is to be drawn.
    pub diagonal: Option<&'a str>,
    /// The lines; a single one has no legend.
    pub series: &'a [Series],
}

impl Lines<'_> {
    /// The drawing.
    pub fn draw(&self) -> Drawing {
        let points = || self.series.iter().flat_map(|s| &s.points).map(|&(x, y)| (sane(x), sane(y)));
        let highest = points().map(|p| p.1).fold(self.most, f64::max);
        let furthest = points().map(|p| p.0).fold(1.0, f64::max);
        let mut canvas = Canvas::with_axes(self.title, self.y, highest);
        let x = |value: f64| LEFT + (RIGHT - LEFT) * sane(value) / (furthest * 1.03);
        let mut legend = LEFT;
        if self.series.len() > 1 {
            let names = self.series.iter().zip(COLOURS.iter().cycle());
            legend = canvas.legend(names.map(|(series, &colour)| (series.name.as_str(), colour)));
        }
        if let Some(diagonal) = self.diagonal {
            let end = furthest.min(canvas.most);
            let corner = (x(end), canvas.y(end));
            canvas.line("mark", (LEFT, BOTTOM), corner);
            canvas.line("mark", (legend, 51.0), (legend + 28.0, 51.0));
            canvas.text((legend + 36.0, 55.0), "start", diagonal);
        }
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            line(&mut canvas, series, colour, &x);
        }
        let mut labelled = f64::NEG_INFINITY;
        // Not negative and finite, numbers are ordered as their bits are.
        for at in points().map(|p| p.0.to_bits()).collect::<BTreeSet<u64>>().into_iter().map(f64::from_bits) {
            if x(at) - labelled > 20.0 {
                canvas.text((x(at), BOTTOM + 20.0), "middle", &label(at));
                labelled = x(at);
            }
        }
        canvas.text(((LEFT + RIGHT) / 2.0, BOTTOM + 48.0), "middle", self.x);
        canvas.finish()
    }
}

/// One line, its points as dots that tell their values.
fn line(canvas: &mut Canvas, series: &Series, colour: &str, x: &dyn Fn(f64) -> f64) {
    let mut path = String::new();
    for &(px, py) in &series.points {
        let at = (x(px), canvas.y(py));
        let _ = write!(path, "{}{:.1} {:.1}", if path.is_empty() { "M" } else { "L" }, at.0, at.1);
    }
    if !path.is_empty() {
        canvas.push(format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
    }
    for &(px, py) in &series.points {
        let (cx, cy) = (x(px), canvas.y(py));
        let tip = super::escaped(&format!("{} {}: {:.2}", series.name, label(sane(px)), sane(py)));
        canvas.push(format!(
            "<circle fill=\"{colour}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4\"><title>{tip}</title></circle>"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_well_formed;
    use super::*;

    #[test]
    fn lines_are_well_formed_whatever_the_points() {
        let draw = |points: &[(f64, f64)], lines: usize| {
            let series = |i: usize| Series { name: format!("<{i}>"), points: points[i.min(points.len())..].to_vec() };
            let series: Vec<Series> = (0..lines).map(series).collect();
            Lines { title: "t", x: "x", y: "y", most: 1.0, diagonal: Some("d<"), series: &series }.draw()
        };
        for points in [&[(1.0, 1.0), (2.0, 1.3), (64.0, 20.0)][..], &[(1.0, f64::NAN), (f64::INFINITY, -1.0)], &[]] {
            (0..8).for_each(|lines| assert_well_formed(&draw(points, lines)));
        }
        assert_eq!(draw(&[(1.0, 1.0), (64.0, 9.0)], 2).file().matches("<circle").count(), 3);
    }
}
