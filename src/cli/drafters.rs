//! Who can draft for a model, and what that takes.
//!
//! Owns: the names users choose by, and which drafters a model has. Refuses to know: how they guess.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use draft::{Cascade, Drafter, Head, Suffix, Token};

use super::args::ModelArgs;
use super::device::Open;
use super::setup::{self, Loaded};
use crate::backend::Backend;
use crate::engine::Wanted;
use crate::model::{Config, EXIT, Model};
use crate::{Error, Result};

/// Who drafts, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// Whoever pays, pass by pass.
    Auto,
    /// Nobody: plain decoding.
    Off,
    /// What followed where the text went on like this.
    Suffix,
    /// The first layers: as many as given, or as the file says.
    Shallow(Option<usize>),
    /// The next-token-prediction block.
    Mtp,
    /// A smaller model.
    Model(PathBuf),
}

impl Who {
    /// The head that was asked for by itself, if any.
    pub fn head(&self) -> Option<Head> {
        match self {
            Who::Auto | Who::Off | Who::Suffix => None,
            Who::Shallow(_) => Some(Head::Shallow),
            Who::Mtp => Some(Head::Mtp),
            Who::Model(_) => Some(Head::Model),
        }
    }
}

/// What may be typed.
const CHOICES: &str = "auto, off, suffix, shallow, shallow:LAYERS, mtp or model:FILE";

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Who, String> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, rest) {
            ("auto", None) => Ok(Who::Auto),
            ("off", None) => Ok(Who::Off),
            ("suffix", None) => Ok(Who::Suffix),
            ("mtp", None) => Ok(Who::Mtp),
            ("shallow", None) => Ok(Who::Shallow(None)),
            ("shallow", Some(layers)) => match layers.parse() {
                Ok(n @ 1..) => Ok(Who::Shallow(Some(n))),
                _ => Err(format!("expected a number of layers of at least 1 behind `shallow:`, found `{layers}`")),
            },
            ("model", Some(file)) if !file.is_empty() => Ok(Who::Model(file.into())),
            ("model", _) => Err("expected a GGUF file behind `model:`".to_owned()),
            _ => Err(format!("expected {CHOICES}")),
        }
    }
}

/// A drafter that a loaded model has, ready to be made as often as wanted.
#[derive(Clone)]
pub struct Crew {
    /// What users call it; `plain` for none.
    pub name: &'static str,
    heads: Vec<Head>,
    copies: bool,
    shallow: Option<usize>,
    /// Earlier texts to copy from, each with an end.
    texts: Vec<Token>,
}

impl Crew {
    /// Nobody.
    pub fn plain() -> Crew {
        Crew { name: "plain", heads: Vec::new(), copies: false, shallow: None, texts: Vec::new() }
    }

    fn suffix(name: &'static str) -> Crew {
        Crew { name, copies: true, ..Crew::plain() }
    }

    fn head(head: Head) -> Crew {
        Crew { name: head.name(), heads: vec![head], ..Crew::plain() }
    }

    /// The drafter that was asked for; a smaller model comes beside it.
    fn new<B: Backend>(who: &Who, model: &Model<B>) -> Result<Crew> {
        match who {
            Who::Auto => Ok(Crew::auto(model)),
            Who::Off => Ok(Crew::plain()),
            Who::Suffix => Ok(Crew::suffix(Suffix::NAME)),
            Who::Shallow(layers) => {
                let shallow = Some(exit(*layers, model.config())?);
                Ok(Crew { shallow, ..Crew::head(Head::Shallow) })
            }
            Who::Mtp if model.has_nextn() => Ok(Crew::head(Head::Mtp)),
            Who::Mtp => Err(Error::new("has no next-token-prediction block (blk.N.nextn.*) to draft with")),
            Who::Model(_) => Ok(Crew::head(Head::Model)),
        }
    }

    /// All that the model has, and the choice among them.
    fn auto<B: Backend>(model: &Model<B>) -> Crew {
        let mut crew = Crew::suffix("auto");
        if model.has_nextn() {
            crew.heads.push(Head::Mtp);
        }
        if let Some(layers) = model.config().exit {
            crew.heads.push(Head::Shallow);
            crew.shallow = Some(layers);
        }
        crew
    }

    /// Every drafter that the model has without a second file, each alone, and the choice among them.
    pub fn all<B: Backend>(model: &Model<B>) -> Vec<Crew> {
        let auto = Crew::auto(model);
        let heads = auto.heads.iter().map(|&head| match head {
            Head::Shallow => Crew { shallow: auto.shallow, ..Crew::head(head) },
            _ => Crew::head(head),
        });
        [Crew::suffix(Suffix::NAME)].into_iter().chain(heads).chain([auto.clone()]).collect()
    }

    /// Whether anybody drafts.
    pub fn drafts(&self) -> bool {
        self.copies || !self.heads.is_empty()
    }

    /// A new drafter that has learnt nothing.
    pub fn drafter(&self) -> Option<Box<dyn Drafter>> {
        let suffix = self.copies.then(|| Suffix::warmed(&self.texts));
        let cascade = || Box::new(Cascade::new(self.name, suffix, &self.heads)) as Box<dyn Drafter>;
        self.drafts().then(cascade)
    }

    /// The heads of the model itself that a sequence must have for it.
    pub fn wanted<B: Backend>(&self) -> Wanted<B> {
        Wanted { shallow: self.shallow, mtp: self.heads.contains(&Head::Mtp), model: None }
    }
}

/// A crew with the smaller model that it asks, if it does.
pub struct Hired<B: Backend> {
    /// The crew.
    pub crew: Crew,
    small: Option<Arc<Model<B>>>,
}

impl<B: Backend> Hired<B> {
    /// The drafter that was asked for. A smaller model stands on a device of its own, of the same kind.
    ///
    /// # Errors
    /// If the model does not have it, or the smaller model cannot be loaded or has another vocabulary.
    pub fn new<O: Open<B = B>>(who: &Who, loaded: &Loaded<B>, args: &ModelArgs, devices: &O) -> Result<Hired<B>> {
        let at = |e: Error| e.about("--draft").at(Path::new(&loaded.about.name));
        let crew = Crew::new(who, &loaded.model).map_err(at)?;
        let small = match who {
            Who::Model(path) => Some(small(path, loaded, args, devices)?),
            _ => None,
        };
        Ok(Hired { crew, small })
    }

    /// The same, copying from earlier `texts` too, each with an end ([`Suffix::warmed`]).
    pub fn warmed(self, texts: Vec<Token>) -> Hired<B> {
        Hired { crew: Crew { texts, ..self.crew }, ..self }
    }

    /// The heads that a sequence must have for it.
    pub fn wanted(&self) -> Wanted<B> {
        Wanted { model: self.small.clone(), ..self.crew.wanted() }
    }
}

impl<B: Backend> From<Crew> for Hired<B> {
    /// Nobody beside the model itself.
    fn from(crew: Crew) -> Hired<B> {
        Hired { crew, small: None }
    }
}

/// How many layers guess: as typed, or as the file says.
fn exit(typed: Option<usize>, config: &Config) -> Result<usize> {
    let most = config.layers.len() - 1;
    match typed.or(config.exit) {
        Some(layers) if layers <= most => Ok(layers),
        Some(layers) => Err(Error::new(format!("shallow:{layers}: expected 1 to {most} layers"))),
        None => Err(Error::new(format!(
            "does not say how many of its first layers were trained to guess ({EXIT}); `shallow:N` takes N of 1 to {most}"
        ))),
    }
}

/// The smaller model, whose vocabulary is that of `loaded`.
fn small<O: Open>(path: &Path, loaded: &Loaded<O::B>, args: &ModelArgs, devices: &O) -> Result<Arc<Model<O::B>>> {
    // The split is that of the large model's layers.
    let args = ModelArgs { model: Some(path.to_owned()), split: Vec::new(), ..args.clone() };
    let small = setup::load(&args, devices)?;
    let (ours, theirs) = (loaded.about.vocab, small.about.vocab);
    let difference = match (&loaded.about.tokenizer, &small.about.tokenizer) {
        (Some(ours), Some(theirs)) => ours.first_difference(theirs),
        _ => (ours != theirs).then(|| format!("{theirs} tokens here, {ours} there")),
    };
    match difference {
        None => Ok(small.model),
        Some(difference) => {
            let text = format!("has another vocabulary than {}: {difference}", loaded.about.name);
            Err(Error::new(text).about("--draft model").at(path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_understood_and_nothing_else() {
        let right = [
            ("auto", Who::Auto),
            ("off", Who::Off),
            ("suffix", Who::Suffix),
            ("mtp", Who::Mtp),
            ("shallow", Who::Shallow(None)),
            ("shallow:3", Who::Shallow(Some(3))),
            ("model:a:b.gguf", Who::Model("a:b.gguf".into())),
        ];
        for (text, who) in right {
            assert_eq!(text.parse(), Ok(who), "{text}");
        }
        for text in ["", "ngram", "auto:1", "off:", "shallow:", "shallow:0", "shallow:x", "model", "model:", "mtp:2"] {
            assert!(text.parse::<Who>().is_err(), "{text}");
        }
    }
}
