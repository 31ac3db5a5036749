//! Tables: aligned for people, in a terminal and on a page; comma separated for programs.
//!
//! Owns: alignment and quoting. Refuses to know: what the cells say.

use super::plot::escaped;

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of as many cells as there are columns.
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// No rows yet.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        Table { columns: columns.iter().map(|&(name, align)| (name.to_owned(), align)).collect(), rows: Vec::new() }
    }

    /// Columns of words whose alignment does not matter.
    pub fn plain(columns: &[&str]) -> Table {
        let columns: Vec<_> = columns.iter().map(|&name| (name, Align::Left)).collect();
        Table::new(&columns)
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Header and rows, each column as wide as its widest cell.
    pub fn aligned(&self) -> String {
        let header = self.columns.iter().map(|c| c.0.clone()).collect();
        let lines: Vec<&Vec<String>> = [&header].into_iter().chain(&self.rows).collect();
        let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let cells = line.iter().zip(&widths).zip(&self.columns);
            let cells: Vec<String> = cells
                .map(|((cell, &width), (_, align))| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// Header and rows as an HTML table. Its classes are `words` and `number`, by alignment.
    pub fn html(&self) -> String {
        let line = |tag: &str, cells: &mut dyn Iterator<Item = &String>| {
            let cells = cells.zip(&self.columns).map(|(cell, (_, align))| {
                let class = if *align == Align::Left { "words" } else { "number" };
                format!("<{tag} class=\"{class}\">{}</{tag}>", escaped(cell))
            });
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let head = line("th", &mut self.columns.iter().map(|c| &c.0));
        let body: String = self.rows.iter().map(|row| line("td", &mut row.iter())).collect();
        format!("<div class=\"wide\"><table>\n<thead>\n{head}</thead>\n<tbody>\n{body}</tbody>\n</table></div>\n")
    }

    /// Header and rows as comma-separated values (RFC 4180, but with plain line feeds).
    pub fn csv(&self) -> String {
        let header = self.columns.iter().map(|c| c.0.clone()).collect();
        let mut text = String::new();
        for line in [&header].into_iter().chain(&self.rows) {
            let cells: Vec<String> = line.iter().map(|cell| quoted(cell)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

/// A cell in quotation marks if it needs them.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

/// Counts as one character each: a dot for none, else a bar as high as the count beside the largest.
pub fn sparkline(counts: &[usize]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or(0);
    let bar = |&count: &usize| match count {
        0 => '·',
        n => BARS[(n * BARS.len()).div_ceil(most) - 1],
    };
    counts.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("task", Align::Left), ("n", Align::Right)]);
        table.push(vec!["quote".to_owned(), "7".to_owned()]);
        table.push(vec!["è".to_owned(), "512".to_owned()]);
        assert_eq!(table.aligned(), "task     n\nquote    7\nè      512\n");
    }

    #[test]
    fn cells_with_separators_are_quoted() {
        let mut table = Table::plain(&["a", "b"]);
        table.push(vec!["x, \"y\"".to_owned(), "z".to_owned()]);
        assert_eq!(table.csv(), "a,b\n\"x, \"\"y\"\"\",z\n");
    }

    #[test]
    fn cells_of_a_page_are_escaped_and_know_their_alignment() {
        let mut table = Table::new(&[("a<b", Align::Left), ("n", Align::Right)]);
        table.push(vec!["x & y".to_owned(), "7".to_owned()]);
        let html = table.html();
        assert!(html.contains("<th class=\"words\">a&lt;b</th><th class=\"number\">n</th>"), "{html}");
        assert!(html.contains("<td class=\"words\">x &amp; y</td><td class=\"number\">7</td>"), "{html}");
    }

    #[test]
    fn a_sparkline_has_a_mark_for_every_count() {
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0, 0]), "··");
        assert_eq!(sparkline(&[800, 0, 1, 100, 101, 400]), "█·▁▁▂▄");
    }
}
