//! Any vocabulary, any text, any ids: an error or an answer, and text that comes back from its ids.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use verbatim::gguf::{Array, Metadata};
use verbatim::text::{Specials, Tokenizer};

/// What is added to a vocabulary of the 256 single bytes, and what is done with it.
#[derive(Debug, Arbitrary)]
struct Input {
    /// Spelling and type.
    tokens: Vec<(String, u8)>,
    /// Pairs of token ids to merge, and whether the merged token is added to the vocabulary.
    merges: Vec<(u16, u16, bool)>,
    eos: Option<u32>,
    text: String,
    ids: Vec<u32>,
}

/// The spelling of each byte: itself where printable, else a letter from U+0100 on (GPT-2's byte-level alphabet).
fn alphabet() -> impl Iterator<Item = String> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = '\u{100}'..;
    (0..=255).filter_map(move |byte| {
        if printable(byte) {
            Some(byte as char)
        } else {
            others.next()
        }
        .map(String::from)
    })
}

fn metadata(input: &Input) -> Metadata {
    let mut tokens: Vec<String> = alphabet().collect();
    let mut types = vec![1i32; tokens.len()];
    for (token, kind) in &input.tokens {
        tokens.push(token.clone());
        types.push((kind % 8).into());
    }
    let mut merges = Vec::new();
    for &(left, right, add) in &input.merges {
        let at = |i: u16| &tokens[i as usize % tokens.len()];
        let (left, right) = (at(left), at(right));
        merges.push(format!("{left} {right}"));
        if add {
            tokens.push(format!("{left}{right}"));
            types.push(1);
        }
        // Doubling lengths would soon fill memory with text that nobody wrote.
        if merges.len() > 64 || tokens.last().is_some_and(|token| token.len() > 256) {
            break;
        }
    }
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.ggml.model", "gpt2".into());
    metadata.insert("tokenizer.ggml.pre", "qwen35".into());
    metadata.insert("tokenizer.ggml.tokens", Array::strings(&tokens).into());
    metadata.insert("tokenizer.ggml.token_type", Array::from(&types[..]).into());
    metadata.insert("tokenizer.ggml.merges", Array::strings(&merges).into());
    if let Some(eos) = input.eos {
        metadata.insert("tokenizer.ggml.eos_token_id", eos.into());
    }
    metadata
}

fuzz_target!(|input: Input| {
    let Ok(tokenizer) = Tokenizer::from_metadata(&metadata(&input)) else {
        return;
    };
    let _ = tokenizer.decode(&input.ids);
    for specials in [Specials::Parse, Specials::AsText] {
        let ids = tokenizer.encode(&input.text, specials).expect("the text is short");
        let bytes = tokenizer.decode(&ids).expect("these ids are in the vocabulary");
        // Other text may be composed on the way (NFC).
        if input.text.is_ascii() {
            assert_eq!(bytes, input.text.as_bytes(), "{specials:?}");
        }
    }
});
