//! Grammars over the embedded model's tokens.

use std::sync::OnceLock;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use verbatim::constraint::{Constraint, Mask};
use verbatim::text::{Grammar, Grammars, Matcher, Specials, Tokenizer};

use super::pocket;

fn tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| Tokenizer::from_metadata(&pocket()).unwrap())
}

fn schema(schema: Value) -> Grammar {
    Grammars::new(tokenizer()).unwrap().json_schema(&schema).unwrap()
}

fn regex(regex: &str) -> Grammar {
    Grammars::new(tokenizer()).unwrap().regex(regex).unwrap()
}

fn mask(matcher: &mut Matcher) -> Mask {
    matcher.mask().expect("the grammar has begun").clone()
}

fn person() -> Value {
    json!({
        "type": "object",
        "description": "A person; \"quoted\" and (bracketed) \\ text, ::= | root, that means nothing.",
        "properties": {
            "name": {"type": "string", "maxLength": 6, "description": "{\"type\": \"integer\"}"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["cat", "dog", "caterpillar"]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 3}
        },
        "required": ["name", "age", "kind", "tags"],
        "additionalProperties": false,
        "$defs": {"tag": {"type": ["boolean", "null"]}}
    })
}

#[track_caller]
fn expect_person(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
    let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["name", "age", "kind", "tags"], "{text}");
    assert!(value["name"].as_str().unwrap().chars().count() <= 6, "{text}");
    assert!(value["age"].as_u64().unwrap() <= 150, "{text}");
    assert!(["cat", "dog", "caterpillar"].contains(&value["kind"].as_str().unwrap()), "{text}");
    let tags = value["tags"].as_array().unwrap();
    assert!((1..=3).contains(&tags.len()) && tags.iter().all(|tag| tag.is_boolean() || tag.is_null()), "{text}");
}

/// Allowed tokens, chosen at random until one ends the text; it is the last. Every mask is compared on the way with what
/// `valid_prefix` says of single tokens, and with what is forced.
fn walk(grammar: &Grammar, random: &mut StdRng) -> Vec<u32> {
    let mut matcher = grammar.start(None);
    let vocab = tokenizer().vocab_size() as u32;
    let mut tokens = Vec::new();
    while tokens.len() < 500 {
        let allowed = mask(&mut matcher);
        let all: Vec<u32> = allowed.tokens().collect();
        let mut some: Vec<u32> = all.choose_multiple(random, 5).copied().collect();
        some.extend((0..10).map(|_| random.random_range(0..vocab + 2)));
        some.extend(tokenizer().eog());
        for token in some {
            let valid = matcher.valid_prefix(&[token]);
            assert_eq!(valid, usize::from(allowed.allows(token)), "token {token} behind {tokens:?}");
        }
        assert_eq!(mask(&mut matcher), allowed, "asking changed something behind {tokens:?}");
        let forced = matcher.forced();
        if let Some(&first) = forced.first() {
            assert_eq!(all, [first], "behind {tokens:?}");
            assert_eq!(matcher.valid_prefix(&forced), forced.len(), "{forced:?} behind {tokens:?}");
        }
        let token = *all.choose(random).expect("something is allowed");
        tokens.push(token);
        matcher.accept(token);
        assert_eq!(matcher.failure(), None);
        if tokenizer().is_eog(token) {
            assert!(matcher.ended());
            return tokens;
        }
    }
    panic!("the text does not end: {:?}", text(&tokens));
}

/// What a walk's tokens say.
fn text(tokens: &[u32]) -> String {
    let ends = tokens.iter().filter(|&&t| tokenizer().is_eog(t)).count();
    String::from_utf8(tokenizer().decode(&tokens[..tokens.len() - ends]).unwrap()).unwrap()
}

#[test]
fn whatever_is_chosen_among_the_allowed_tokens_gives_a_text_that_fits() {
    let grammar = schema(person());
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..30 {
        expect_person(&text(&walk(&grammar, &mut random)));
    }
    let grammar = regex(r"(ab|cde?)/[0-9]{2,4}( [A-Z]é)?\n");
    for _ in 0..30 {
        let text = text(&walk(&grammar, &mut random));
        let (head, tail) = text.split_once('/').unwrap();
        assert!(["ab", "cd", "cde"].contains(&head), "{text:?}");
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        let end = &tail[digits..];
        let marked = end.starts_with(' ') && end.ends_with("é\n") && end.chars().count() == 4;
        assert!((2..=4).contains(&digits) && (end == "\n" || marked), "{text:?}");
    }
}

#[test]
fn drafts_are_cut_where_stepping_would_stop_and_nothing_is_remembered_of_them() {
    let grammar = schema(person());
    let mut random = StdRng::seed_from_u64(2);
    for round in 0..20 {
        let mut tokens = walk(&grammar, &mut random);
        tokens.extend(tokens.last().copied());
        if round > 5 {
            let at = random.random_range(0..tokens.len());
            tokens[at] = random.random_range(0..tokenizer().vocab_size() as u32);
        }
        let mut stepping = grammar.start(None);
        let mut valid = 0;
        while valid < tokens.len() && mask(&mut stepping).allows(tokens[valid]) {
            stepping.accept(tokens[valid]);
            valid += 1;
        }
        let mut matcher = grammar.start(None);
        for from in 0..=valid {
            assert_eq!(matcher.valid_prefix(&tokens[from..]), valid - from, "round {round}, from {from}");
            assert_eq!(matcher.valid_prefix(&tokens[from..valid]), valid - from);
            let mut fresh = grammar.start(None);
            tokens[..from].iter().for_each(|&token| fresh.accept(token));
            assert_eq!(mask(&mut matcher), mask(&mut fresh), "round {round}, from {from}");
            assert_eq!(matcher.forced(), fresh.forced());
            assert_eq!(matcher.ended(), fresh.ended());
            if from < valid {
                matcher.accept(tokens[from]);
            }
        }
    }
}

#[test]
fn what_must_come_is_forced_in_the_tokenizers_own_tokens() {
    let mut matcher = schema(person()).start(None);
    let mut forced = Vec::new();
    loop {
        let more = matcher.forced();
        if more.is_empty() {
            break;
        }
        more.iter().for_each(|&token| matcher.accept(token));
        forced.extend(more);
    }
    let found = text(&forced);
    assert!(r#"{"name": ""#.starts_with(&found) && found.starts_with(r#"{"name"#), "{found:?}");
    assert_eq!(forced, tokenizer().encode(&found, Specials::AsText).unwrap());
}

#[test]
fn the_end_is_allowed_exactly_where_the_grammar_may_end() {
    let mut matcher = regex("a{2,3}").start(None);
    let a = tokenizer().encode("a", Specials::AsText).unwrap()[0];
    let ends = tokenizer().eog();
    let may_end = |matcher: &mut Matcher| {
        let mask = mask(matcher);
        assert!(ends.iter().all(|&end| mask.allows(end) == mask.allows(ends[0])));
        mask.allows(ends[0])
    };
    assert!(!may_end(&mut matcher) && !matcher.ended());
    matcher.accept(a);
    assert!(!may_end(&mut matcher));
    matcher.accept(a);
    assert!(may_end(&mut matcher) && mask(&mut matcher).allows(a) && !matcher.ended());
    assert_eq!(matcher.valid_prefix(&[a, ends[0], ends[0], a]), 3);
    assert_eq!(matcher.valid_prefix(&[a, a]), 1);
    matcher.accept(a);
    for _ in 0..3 {
        assert!(matcher.ended());
        assert_eq!(mask(&mut matcher).tokens().collect::<Vec<_>>(), ends);
        assert_eq!(matcher.valid_prefix(&[a]), 0);
        assert_eq!(matcher.valid_prefix(&[ends[0], ends[0], a]), 2);
        assert!(matcher.forced().iter().all(|token| ends.contains(token)));
        matcher.accept(ends[0]);
    }
    assert_eq!(matcher.failure(), None);
}

#[test]
fn a_grammar_may_begin_behind_the_end_of_thinking_wherever_that_lies_in_a_block() {
    let last = tokenizer().special_id("</think>").expect("the model has thinking tokens");
    let grammar = regex("a+b");
    let encode = |text: &str| tokenizer().encode(text, Specials::AsText).unwrap();
    let thoughts = encode("First, a b c: {}");
    let (a, b) = (encode("a")[0], encode("b")[0]);
    let block = [&thoughts[..], &[last, a, a, b], &tokenizer().eog()[..1]].concat();
    for from in 0..=thoughts.len() {
        let mut matcher = grammar.start(Some(last));
        block[..from].iter().for_each(|&token| matcher.accept(token));
        assert!(matcher.mask().is_none() && matcher.forced().is_empty() && !matcher.ended());
        assert_eq!(matcher.valid_prefix(&block[from..]), block.len() - from);
        let wrong = [&block[from..block.len() - 2], &[last, b]].concat();
        assert_eq!(matcher.valid_prefix(&wrong), wrong.len() - 2);
        assert_eq!(matcher.valid_prefix(&thoughts), thoughts.len());
        assert!(matcher.mask().is_none());
    }
    let mut matcher = grammar.start(Some(last));
    block[..=thoughts.len()].iter().for_each(|&token| matcher.accept(token));
    let mut fresh = grammar.start(None);
    assert_eq!(mask(&mut matcher), mask(&mut fresh));
    assert!(!mask(&mut matcher).allows(last));
}

#[test]
fn special_tokens_are_never_part_of_a_text() {
    let mut matcher = schema(json!({"type": "string"})).start(None);
    matcher.accept(tokenizer().encode("\"", Specials::AsText).unwrap()[0]);
    let mask = mask(&mut matcher);
    let special: Vec<u32> = (0..tokenizer().vocab_size() as u32).filter(|&t| tokenizer().is_special(t)).collect();
    assert!(special.len() > 2 && special.iter().all(|&token| !mask.allows(token)));
    assert!(mask.count() > 1000);
}

#[test]
fn a_character_that_tokens_cut_and_one_that_is_not_composed_are_followed() {
    // The last one is e and a combining accent, which the tokenizer would compose.
    for wanted in ["🦀", "naïve – ½", "e\u{301}t"] {
        let grammar = schema(json!({"const": wanted}));
        let mut random = StdRng::seed_from_u64(3);
        for _ in 0..5 {
            assert_eq!(serde_json::from_str::<Value>(&text(&walk(&grammar, &mut random))).unwrap(), wanted);
        }
    }
}

#[test]
fn what_cannot_be_followed_is_refused_in_one_sentence() {
    let grammars = Grammars::new(tokenizer()).unwrap();
    let bad = [
        grammars.json_schema(&json!({"type": "strange"})),
        grammars.json_schema(&json!({"type": "string", "pattern": "("})),
        grammars.json_schema(&json!({"$ref": "#/nowhere"})),
        grammars.json_schema(&json!({"type": "integer", "minimum": 5, "maximum": 2})),
        grammars.json_schema(&json!(5)),
        grammars.json_schema(&json!(false)),
    ];
    for result in bad {
        let message = result.unwrap_err().to_string();
        println!("{message}");
        assert!(message.starts_with("expected a JSON schema that can be followed; "), "{message}");
        assert!(message.len() < 300 && !message.contains('\n'), "{message}");
    }
    for pattern in ["(", "a{3,1}", "[z-a]", "a\\", "", "(?=a)b"] {
        let message = grammars.regex(pattern).unwrap_err().to_string();
        println!("{message}");
        assert!(message.starts_with("expected a regular expression that can be followed; "), "{message}");
        assert!(message.len() < 300 && !message.contains('\n'), "{message}");
    }
}
