//! A result as one page that needs no other file: headline figures, drawings, tables.
//!
//! Owns: the page's markup and looks. Refuses to know: what was measured.

use crate::cli::plot::{RULES, escaped};

/// A figure that is seen first.
pub struct Figure {
    /// The number, or a word.
    pub value: String,
    /// What it is.
    pub name: String,
}

/// A part of the page.
pub struct Section {
    /// Its heading.
    pub heading: &'static str,
    /// How to read it, in a sentence.
    pub note: String,
    /// Markup: drawings and tables.
    pub markup: String,
}

/// A page.
pub struct Page {
    /// What it shows.
    pub title: &'static str,
    /// Seen first.
    pub figures: Vec<Figure>,
    /// One below the other.
    pub sections: Vec<Section>,
}

/// The page's own looks; drawings have [`RULES`].
const LOOKS: &str = "\
    :root{color-scheme:light dark;--ink:#1d232b;--soft:#5b6672;--paper:#fff;--card:#f4f6f8;--edge:#dde2e8}\
    @media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--soft:#9aa5b1;--paper:#16181c;--card:#1f2329;--edge:#343a43}}\
    *{box-sizing:border-box}\
    body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
    main{max-width:920px;margin:0 auto;padding:40px 20px 60px}\
    h1{font-size:28px;line-height:1.2;margin:0 0 4px}h2{font-size:19px;margin:44px 0 2px}p{margin:0;color:var(--soft)}\
    .figures{display:flex;flex-wrap:wrap;gap:12px;margin:24px 0 0}\
    .figure{flex:1 1 150px;background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:14px 16px}\
    .figure b{display:block;font-size:30px;line-height:1.2;font-variant-numeric:tabular-nums}\
    .figure span{color:var(--soft);font-size:14px}\
    svg{display:block;width:100%;height:auto;margin:10px 0 0}\
    .wide{overflow-x:auto;margin:12px 0 0}\
    table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums;white-space:nowrap}\
    th,td{padding:5px 10px;border-bottom:1px solid var(--edge);text-align:left}th{color:var(--soft);font-weight:600}\
    .number{text-align:right}\
    dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:12px 0 0;font-size:14px}\
    dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}";

impl Page {
    /// The page; `facts` say how it was measured.
    pub fn html(&self, facts: &[(&str, String)]) -> String {
        let title = escaped(self.title);
        let figure = |f: &Figure| {
            format!("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", escaped(&f.value), escaped(&f.name))
        };
        let section = |s: &Section| {
            let (heading, note) = (escaped(s.heading), escaped(&s.note));
            format!("<section>\n<h2>{heading}</h2>\n<p>{note}</p>\n{}</section>\n", s.markup)
        };
        let fact = |(name, value): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
        let figures: String = self.figures.iter().map(figure).collect();
        let sections: String = self.sections.iter().map(section).collect();
        let facts: String = facts.iter().map(fact).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
             <style>{LOOKS}{RULES}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n\
             <div class=\"figures\">\n{figures}</div>\n{sections}\
             <section>\n<h2>How it was measured</h2>\n<dl>\n{facts}</dl>\n</section>\n</main>\n</body>\n</html>\n"
        )
    }
}

/// The command as it was typed, so that a shell reads it again as it was.
pub fn typed(words: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let word = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words: Vec<String> = ["verbatim".to_owned()].into_iter().chain(words.map(word)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = ["bench", "--prompts", "my file.jsonl", "it's", "", "-n", "5"].map(str::to_owned);
        assert_eq!(typed(words.into_iter()), "verbatim bench --prompts 'my file.jsonl' 'it'\\''s' '' -n 5");
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let figures = vec![Figure { value: "<1>".to_owned(), name: "a & b".to_owned() }];
        let sections = vec![Section { heading: "h", note: "<note>".to_owned(), markup: "<svg></svg>".to_owned() }];
        let html = Page { title: "t", figures, sections }.html(&[("file", "\"x\" <y>".to_owned())]);
        for part in ["&lt;1&gt;", "a &amp; b", "&lt;note&gt;", "<svg></svg>", "&quot;x&quot; &lt;y&gt;"] {
            assert!(html.contains(part), "{part}");
        }
    }
}
