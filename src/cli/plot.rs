//! Drawings: grouped bars and a curve, as SVG that reads well on light and dark pages.
//!
//! Owns: layout, axes, colours, escaping. Refuses to know: what is drawn, and where it is kept.

use std::fmt::Write;

/// A drawing's size, and the area inside its axes.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 350.0;

/// Colours of series, chosen to be told apart on white and on black; used in turn.
const COLOURS: [&str; 6] = ["#3b82d6", "#d9822b", "#2f9e6e", "#b0559e", "#c94f4f", "#7a7f29"];

/// Text and axes follow the page: dark on light, light on dark.
const STYLE: &str = "<style>\
    text{font:13px sans-serif;fill:#222}.title{font-size:16px}.axis{stroke:#222;fill:none}.grid{stroke:#8886;fill:none}\
    .paper{fill:#fff}.mark{stroke:#777;stroke-dasharray:5 4;fill:none}\
    @media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#ddd}.paper{fill:#16181c}.mark{stroke:#aaa}}\
    </style>";

/// Bars in groups: one group per task, one bar in it per series.
pub struct Bars<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What the heights mean.
    pub unit: &'a str,
    /// The names of the bars in each group.
    pub series: &'a [String],
    /// A name, and a height for each series.
    pub groups: &'a [(String, Vec<f64>)],
    /// A height that is marked by a dashed line.
    pub mark: f64,
}

/// Points joined by lines, with a dashed diagonal `y = x` for comparison.
pub struct Curve<'a> {
    /// What it shows.
    pub title: &'a str,
    /// What x means.
    pub x: &'a str,
    /// What y means.
    pub y: &'a str,
    /// What the diagonal means.
    pub diagonal: &'a str,
    /// (x, y), x ascending.
    pub points: &'a [(f64, f64)],
}

/// `text` with the characters escaped that mean something in XML; characters that XML does not allow are dropped.
fn escaped(text: &str) -> String {
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

/// A round step that divides `0..=most` into four to ten parts.
fn step(most: f64) -> f64 {
    let decade = 10f64.powf((most / 10.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0].map(|s| s * decade);
    steps.into_iter().find(|s| most / s <= 8.0).unwrap_or(most)
}

/// Finite and not negative, whatever was measured.
fn sane(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// A drawing under way: y runs from 0 to `most`.
struct Canvas {
    svg: String,
    most: f64,
}

impl Canvas {
    /// Paper, title and the y axis.
    fn new(title: &str, unit: &str, highest: f64) -> Canvas {
        let step = step(highest.max(1.0) * 1.05);
        let most = (highest.max(1.0) * 1.05 / step).ceil() * step;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
             <title>{0}</title>\n{STYLE}\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
            escaped(title)
        );
        let _ = writeln!(svg, "<text class=\"title\" x=\"{LEFT}\" y=\"28\">{}</text>", escaped(title));
        let mut canvas = Canvas { svg, most };
        let mut i = 0.0;
        while i * step <= most * 1.0001 {
            let y = canvas.y(i * step);
            canvas.line("grid", (LEFT, y), (RIGHT, y));
            let label = format!("{}", (i * step * 1000.0).round() / 1000.0);
            canvas.text((LEFT - 8.0, y + 4.0), "end", &label);
            i += 1.0;
        }
        let middle = (TOP + BOTTOM) / 2.0;
        let _ = writeln!(
            canvas.svg,
            "<text text-anchor=\"middle\" transform=\"translate(22 {middle}) rotate(-90)\">{}</text>",
            escaped(unit)
        );
        canvas.line("axis", (LEFT, TOP), (LEFT, BOTTOM));
        canvas.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        canvas
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (sane(value) / self.most).min(1.0)
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let line = format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n");
        self.svg.push_str(&line);
    }

    /// `anchor` is what (x, y) is of the text: its start, middle or end.
    fn text(&mut self, (x, y): (f64, f64), anchor: &str, text: &str) {
        let text = escaped(text);
        let text = format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n");
        self.svg.push_str(&text);
    }

    fn rect(&mut self, colour: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let rect = format!(
            "<rect fill=\"{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n"
        );
        self.svg.push_str(&rect);
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

impl Bars<'_> {
    /// The drawing.
    pub fn svg(&self) -> String {
        let heights = self.groups.iter().flat_map(|g| &g.1).map(|&v| sane(v));
        let mut canvas = Canvas::new(self.title, self.unit, heights.fold(self.mark, f64::max));
        let mut legend = LEFT;
        for (i, name) in self.series.iter().enumerate() {
            canvas.rect(COLOURS[i % COLOURS.len()], (legend, 44.0), (12.0, 12.0));
            canvas.text((legend + 18.0, 55.0), "start", name);
            legend += 34.0 + 8.0 * name.chars().count() as f64;
        }
        let group = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        let bar = group * 0.7 / self.series.len().max(1) as f64;
        for (g, (name, values)) in self.groups.iter().enumerate() {
            let left = LEFT + g as f64 * group;
            for (i, &value) in values.iter().enumerate() {
                let (x, y) = (left + group * 0.15 + i as f64 * bar, canvas.y(value));
                canvas.rect(COLOURS[i % COLOURS.len()], (x, y), (bar * 0.9, BOTTOM - y));
                canvas.text((x + bar * 0.45, y - 5.0), "middle", &format!("{:.2}", sane(value)));
            }
            canvas.text((left + group / 2.0, BOTTOM + 22.0), "middle", name);
        }
        let mark = canvas.y(self.mark);
        canvas.line("mark", (LEFT, mark), (RIGHT, mark));
        canvas.finish()
    }
}

impl Curve<'_> {
    /// The drawing.
    pub fn svg(&self) -> String {
        let highest = self.points.iter().map(|p| sane(p.1)).fold(1.0, f64::max);
        let furthest = self.points.iter().map(|p| sane(p.0)).fold(1.0, f64::max);
        let mut canvas = Canvas::new(self.title, self.y, highest);
        let x = |value: f64| LEFT + (RIGHT - LEFT) * sane(value) / (furthest * 1.03);
        let end = furthest.min(canvas.most);
        let corner = (x(end), canvas.y(end));
        canvas.line("mark", (LEFT, BOTTOM), corner);
        canvas.line("mark", (LEFT, 51.0), (LEFT + 28.0, 51.0));
        canvas.text((LEFT + 36.0, 55.0), "start", self.diagonal);
        let mut labelled = f64::NEG_INFINITY;
        let mut path = String::new();
        for &(px, py) in self.points {
            let at = (x(px), canvas.y(py));
            let _ = write!(path, "{}{:.1} {:.1}", if path.is_empty() { "M" } else { "L" }, at.0, at.1);
            let dot = format!("<circle fill=\"{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"/>\n", COLOURS[0], at.0, at.1);
            canvas.svg.push_str(&dot);
            if at.0 - labelled > 20.0 {
                canvas.text((at.0, BOTTOM + 20.0), "middle", &px.to_string());
                labelled = at.0;
            }
        }
        let path = format!("<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", COLOURS[0]);
        canvas.svg.push_str(&path);
        canvas.text(((LEFT + RIGHT) / 2.0, BOTTOM + 48.0), "middle", self.x);
        canvas.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tag is closed in order, attributes are quoted, and no number is NaN or infinite.
    fn assert_well_formed(svg: &str) {
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

    #[test]
    fn bars_are_well_formed_whatever_the_values_and_names() {
        let series = ["ngram".to_owned(), "a<b>&\"c\"\u{0}".to_owned()];
        for values in [vec![1.5, 3.0], vec![0.0, f64::NAN], vec![f64::INFINITY, 1e9], vec![-1.0, 1e-9]] {
            let groups = [("quote & list".to_owned(), values.clone()), ("x".to_owned(), values)];
            let svg = Bars { title: "t<", unit: "u>", series: &series, groups: &groups, mark: 1.0 }.svg();
            assert_well_formed(&svg);
            assert!(svg.contains("quote &amp; list") && svg.contains("a&lt;b&gt;&amp;&quot;c&quot;<"));
        }
        assert_well_formed(&Bars { title: "", unit: "", series: &[], groups: &[], mark: 1.0 }.svg());
    }

    #[test]
    fn a_curve_is_well_formed_whatever_the_points() {
        let draw = |points: &[(f64, f64)]| Curve { title: "t", x: "x", y: "y", diagonal: "d", points }.svg();
        for points in [&[(1.0, 1.0), (2.0, 1.3), (64.0, 20.0)][..], &[(1.0, f64::NAN)], &[]] {
            assert_well_formed(&draw(points));
        }
        assert_eq!(draw(&[(1.0, 1.0), (64.0, 9.0)]).matches("<circle").count(), 2);
    }

    #[test]
    fn an_axis_has_a_few_round_steps() {
        for most in [1.05, 1.3, 2.0, 3.7, 9.0, 33.0, 64.0, 100.0, 1e6] {
            let step = step(most);
            assert!((2.0..=8.0).contains(&(most / step)), "{most} in steps of {step}");
        }
    }
}
