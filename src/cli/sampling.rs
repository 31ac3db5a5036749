//! Flags that change which token is chosen.
//!
//! Owns: the flags of sampling and of grammars, and what is built from them. Refuses to know: which commands have them.

use std::path::Path;

use clap::Args;
use draft::Token;
use serde_json::Value;

use crate::engine::{PENALTY_WINDOW, Sampling};
use crate::text::{Grammar, Grammars, Specials, Tokenizer};
use crate::{Error, Result};

const BIAS: &str = "--logit-bias";
const SCHEMA: &str = "--json-schema";
const REGEX: &str = "--regex";

/// How tokens are chosen.
#[derive(Debug, Clone, Args)]
pub struct SamplingArgs {
    /// Draw tokens at random, the more evenly the higher this is; 0 always takes the best one
    #[arg(long, visible_alias = "temp", value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Draw among this many of the best tokens; 0 is all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub top_k: usize,
    /// Draw among the fewest best tokens whose probabilities sum up to this
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub top_p: f32,
    /// Draw among tokens at least this times as probable as the best one
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub min_p: f32,
    /// Divide the positive logits of recent tokens by this, and multiply the others; 1 changes nothing
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub repeat_penalty: f32,
    /// Take this from the logit of every recent token
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// Take this from a token's logit for each time that it is among the recent ones
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// How many of the last tokens, of prompt and output, are recent; -1 is all
    #[arg(long, value_name = "N", default_value_t = PENALTY_WINDOW as i64, value_parser = window, allow_negative_numbers = true)]
    pub penalty_last_n: i64,
    /// Add VALUE to a token's logit; the token as its id or as its text (a word inside a text usually begins
    /// with a space); -inf forbids it; may be given more than once
    #[arg(long, value_name = "TOKEN=VALUE")]
    pub logit_bias: Vec<String>,
    /// Which of all the texts that could be drawn [default: another one each time; the summary names it]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// What the output must fit.
#[derive(Debug, Clone, Args)]
pub struct GrammarArgs {
    /// Generate JSON that fits this JSON schema, unless a limit ends it first: a file, or the schema itself
    #[arg(long, value_name = "FILE|JSON", conflicts_with = "regex")]
    pub json_schema: Option<String>,
    /// Generate text that this regular expression matches as a whole, unless a limit ends it first
    #[arg(long, value_name = "RE")]
    pub regex: Option<String>,
}

fn window(text: &str) -> std::result::Result<i64, String> {
    match text.parse() {
        Ok(n @ -1..) => Ok(n),
        _ => Err("expected a whole number of at least 0, or -1 for all".to_owned()),
    }
}

/// The settings that were asked for, for a model with `vocab` tokens. Where tokens are drawn and no seed is given, it is a
/// random one.
///
/// # Errors
/// If a value is out of range, or a biased token is none: names the flag.
pub fn sampling(args: &SamplingArgs, vocab: usize, tokenizer: Option<&Tokenizer>) -> Result<Sampling> {
    // Small enough to be typed again.
    let random = || if args.temperature > 0.0 { u64::from(rand::random::<u32>()) } else { 0 };
    let bias = |text: &String| bias(text, vocab, tokenizer).map_err(|e| e.about(BIAS));
    let settings = Sampling {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repeat_penalty,
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        penalty_window: usize::try_from(args.penalty_last_n).unwrap_or(usize::MAX),
        logit_bias: args.logit_bias.iter().map(bias).collect::<Result<_>>()?,
        seed: args.seed.unwrap_or_else(random),
    };
    settings.validate()?;
    Ok(settings)
}

/// One TOKEN=VALUE. The last `=` counts, so that a token may have one.
fn bias(text: &str, vocab: usize, tokenizer: Option<&Tokenizer>) -> Result<(Token, f32)> {
    let parts = text.rsplit_once('=').filter(|(token, _)| !token.is_empty());
    let (token, value) = parts.ok_or_else(|| Error::new(format!("expected TOKEN=VALUE, found `{text}`")))?;
    let number = value.parse();
    let value = number.map_err(|_| Error::new(format!("expected a number behind `{token}=`, found `{value}`")))?;
    if token.bytes().all(|byte| byte.is_ascii_digit()) {
        let id = token.parse().ok().filter(|&id: &Token| (id as usize) < vocab);
        let outside = || Error::new(format!("token {token} is not in the vocabulary of {vocab}"));
        return Ok((id.ok_or_else(outside)?, value));
    }
    let Some(tokenizer) = tokenizer else {
        return Err(Error::new(format!("expected a token id, found `{token}`: the model has no tokenizer")));
    };
    match tokenizer.encode(token, Specials::Parse)?[..] {
        [id] => Ok((id, value)),
        ref ids => Err(Error::new(format!("`{token}` is {} tokens, expected one", ids.len()))),
    }
}

/// The grammar that was asked for, if any.
///
/// # Errors
/// If the schema cannot be read, or it or the regular expression cannot be followed: names the flag.
pub fn grammar(args: &GrammarArgs, tokenizer: Option<&Tokenizer>) -> Result<Option<Grammar>> {
    let flag = if args.json_schema.is_some() { SCHEMA } else { REGEX };
    let grammars = || {
        let tokenizer = tokenizer.ok_or_else(|| Error::new("the model has no tokenizer"))?;
        Grammars::new(tokenizer)
    };
    let made = match (&args.json_schema, &args.regex) {
        (Some(schema), _) => json_schema(schema).and_then(|schema| grammars()?.json_schema(&schema)),
        (None, Some(regex)) => grammars().and_then(|grammars| grammars.regex(regex)),
        (None, None) => return Ok(None),
    };
    made.map(Some).map_err(|e| e.about(flag))
}

/// A schema by itself, or the one in a file.
fn json_schema(text: &str) -> Result<Value> {
    let wrong = |e: serde_json::Error| Error::new(format!("expected JSON, found something else: {e}"));
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(wrong);
    }
    let path = Path::new(text);
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
    serde_json::from_str(&text).map_err(|e| wrong(e).at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::pocket;
    use crate::constraint::Constraint;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        sampling: SamplingArgs,
        #[command(flatten)]
        grammar: GrammarArgs,
    }

    fn typed(line: &[&str]) -> Typed {
        Typed::try_parse_from([&["x"], line].concat()).unwrap()
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_metadata(pocket::open().unwrap().metadata()).unwrap()
    }

    fn built(line: &[&str]) -> Result<Sampling> {
        let tokenizer = tokenizer();
        sampling(&typed(line).sampling, tokenizer.vocab_size(), Some(&tokenizer))
    }

    #[test]
    fn nothing_typed_is_the_default() {
        assert_eq!(built(&[]).unwrap(), Sampling::default());
        assert!(grammar(&typed(&[]).grammar, None).unwrap().is_none());
    }

    #[test]
    fn every_flag_reaches_its_setting() {
        let line = "--temp 0.7 --top-k 40 --top-p 0.9 --min-p 0.05 --repeat-penalty 1.1 --presence-penalty -0.5 \
                    --frequency-penalty -0.25 --penalty-last-n -1 --logit-bias 5=-inf --logit-bias <|im_end|>=-1.5 \
                    --logit-bias ==2 --seed 9";
        let tokenizer = tokenizer();
        let equals = tokenizer.encode("=", Specials::AsText).unwrap()[0];
        let expected = Sampling {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.9,
            min_p: 0.05,
            repetition_penalty: 1.1,
            presence_penalty: -0.5,
            frequency_penalty: -0.25,
            penalty_window: usize::MAX,
            logit_bias: vec![
                (5, f32::NEG_INFINITY),
                (tokenizer.special_id("<|im_end|>").unwrap(), -1.5),
                (equals, 2.0),
            ],
            seed: 9,
        };
        assert_eq!(built(&line.split_whitespace().collect::<Vec<_>>()).unwrap(), expected);
        assert_eq!(built(&["--penalty-last-n", "0"]).unwrap().penalty_window, 0);
        let spaced = tokenizer.encode(" the", Specials::AsText).unwrap();
        assert_eq!(built(&["--logit-bias", " the=1"]).unwrap().logit_bias, [(spaced[0], 1.0)]);
    }

    #[test]
    fn a_seed_is_made_up_only_where_tokens_are_drawn() {
        assert_eq!(built(&["--top-k", "5"]).unwrap().seed, 0);
        let seeds: Vec<u64> = (0..4).map(|_| built(&["--temp", "1"]).unwrap().seed).collect();
        assert!(seeds.iter().any(|&seed| seed != seeds[0]));
    }

    #[test]
    fn errors_name_the_flag() {
        let refused = |line: &[&str], expected: &str| {
            let message = built(line).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        };
        refused(&["--temp=-1"], "--temperature: expected a number of at least 0, found -1");
        refused(&["--top-p", "1.5"], "--top-p: expected a number from 0 to 1, found 1.5");
        refused(&["--logit-bias", "5"], "--logit-bias: expected TOKEN=VALUE, found `5`");
        refused(&["--logit-bias", "5=x"], "--logit-bias: expected a number behind `5=`, found `x`");
        refused(&["--logit-bias", "5=nan"], "--logit-bias: expected a finite number or -inf, found NaN");
        refused(&["--logit-bias", "99999999=1"], "--logit-bias: token 99999999 is not in the vocabulary of ");
        refused(&["--logit-bias", "some five words in here=1"], "--logit-bias: `some five words in here` is ");
        let message = sampling(&typed(&["--logit-bias", "a=1"]).sampling, 9, None).unwrap_err().to_string();
        assert_eq!(message, "--logit-bias: expected a token id, found `a`: the model has no tokenizer");
        assert!(Typed::try_parse_from(["x", "--penalty-last-n", "-2"]).is_err());
    }

    #[test]
    fn a_grammar_comes_from_the_line_or_from_a_file() {
        let tokenizer = tokenizer();
        let built = |line: &[&str]| grammar(&typed(line).grammar, Some(&tokenizer));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("schema.json");
        let path = file.to_str().unwrap();
        std::fs::write(&file, r#"{"const": 5}"#).unwrap();
        let five = tokenizer.encode("5", Specials::AsText).unwrap();
        for line in [["--json-schema", path], ["--json-schema", r#" {"const": 5}"#], ["--regex", "5"]] {
            let mut matcher = built(&line).unwrap().unwrap().start(None);
            assert_eq!(matcher.mask().unwrap().tokens().collect::<Vec<_>>(), five, "{line:?}");
        }
        let refused = |line: &[&str], expected: &str| {
            let message = built(line).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        std::fs::write(&file, "five").unwrap();
        refused(&["--json-schema", path], &format!("{path}: --json-schema: expected JSON, found something else: "));
        refused(&["--json-schema", "{"], "--json-schema: expected JSON, found something else: ");
        refused(&["--json-schema", "absent.json"], "absent.json: --json-schema: cannot read: ");
        refused(&["--json-schema", r#"{"type": "x"}"#], "--json-schema: expected a JSON schema that can be followed; ");
        refused(&["--regex", "("], "--regex: expected a regular expression that can be followed; ");
        assert!(Typed::try_parse_from(["x", "--regex", "a", "--json-schema", "{}"]).is_err());
    }
}
