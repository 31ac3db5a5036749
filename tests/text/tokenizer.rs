//! The tokenizer.

use std::sync::OnceLock;

use serde_json::Value as Json;
use verbatim::gguf::{Array, Kind, Metadata, Value};
use verbatim::text::{Specials, Tokenizer};

use super::{cases, metadata, pocket};

/// Qwen3.5's own vocabulary, loaded once; absent outside the workplace that supplies it.
fn qwen() -> Option<&'static Tokenizer> {
    static TOKENIZER: OnceLock<Option<Tokenizer>> = OnceLock::new();
    let load = || metadata("../shared/data/vocab-qwen35.gguf").map(|m| Tokenizer::from_metadata(&m).unwrap());
    TOKENIZER.get_or_init(load).as_ref()
}

fn ids(case: &Json, column: &str) -> Vec<u32> {
    case[column].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Both columns of every case, and the way back.
fn check(tokenizer: &Tokenizer, cases: &[Json]) {
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let parsed = tokenizer.encode(text, Specials::Parse).unwrap();
        assert_eq!(parsed, ids(case, "ids"), "{text:?}, special tokens parsed");
        let plain = tokenizer.encode(text, Specials::AsText).unwrap();
        assert_eq!(plain, ids(case, "ids_specials_as_text"), "{text:?}, special tokens as text");
        assert_eq!(tokenizer.decode(&parsed).unwrap(), tokenizer.decode(&plain).unwrap(), "{text:?} decoded");
        let again = String::from_utf8(tokenizer.decode(&parsed).unwrap()).unwrap();
        assert_eq!(tokenizer.encode(&again, Specials::Parse).unwrap(), parsed, "{text:?} encoded again");
        if text.is_ascii() {
            assert_eq!(again, text);
        }
    }
}

#[test]
fn the_supplied_texts_have_the_supplied_ids() {
    let cases = cases("tokenizer-qwen35.json");
    assert_eq!(cases.len(), 47);
    if let Some(qwen) = qwen() {
        check(qwen, &cases);
    }
}

#[test]
fn pocket_texts_have_the_ids_that_hugging_face_gives() {
    check(&Tokenizer::from_metadata(&pocket()).unwrap(), &cases("pocket-texts.json"));
}

#[test]
fn golden_prompts_have_the_golden_ids() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/pocket/goldens/huggingface-bf16.json");
    let Ok(goldens) = std::fs::read_to_string(path) else {
        println!("skipped: {path} is absent");
        return;
    };
    let tokenizer = Tokenizer::from_metadata(&pocket()).unwrap();
    let goldens: Vec<Json> = serde_json::from_str(&goldens).unwrap();
    for golden in goldens {
        let prompt = golden["prompt"].as_str().unwrap();
        assert_eq!(tokenizer.encode(prompt, Specials::Parse).unwrap(), ids(&golden, "prompt_ids"));
        let text = tokenizer.decode(&ids(&golden, "greedy_ids")).unwrap();
        assert_eq!(String::from_utf8_lossy(&text), golden["greedy_text"].as_str().unwrap());
    }
}

#[test]
fn marks_stay_with_their_letters_and_digits_stand_alone() {
    let Some(qwen) = qwen() else { return };
    let plain = |text: &str| qwen.encode(text, Specials::AsText).unwrap();
    assert_eq!(plain("हिन्दी में"), [215989, 150127, 177453, 170239]);
    assert_eq!(plain("ภาษาไทยไม่มีช่องว่าง"), [229936, 155315, 160298, 151613]);
    assert_eq!(plain("שָׁלוֹם"), [56442, 169404, 147, 223, 179240, 146, 117, 148505]);
    assert_eq!(plain("1234567890"), [16, 17, 18, 19, 20, 21, 22, 23, 24, 15]);
    assert_eq!(plain("a\r\nb\r\n\r\nc"), [64, 317, 65, 845, 66]);
    assert_eq!(plain("e\u{301}"), plain("é"));
    assert_eq!(plain("👩\u{200d}👩"), [9008, 239, 102, 373, 235, 9008, 239, 102]);
}

#[test]
fn think_is_one_token_when_parsed_and_text_when_a_user_types_it() {
    let Some(qwen) = qwen() else { return };
    assert_eq!(qwen.special_id("<think>"), Some(248068));
    assert_eq!(qwen.encode("<think>", Specials::Parse).unwrap(), [248068]);
    assert_eq!(qwen.encode("<think>", Specials::AsText).unwrap(), [13314, 741, 29]);
    assert_eq!(qwen.special_id("think"), None);
    assert_eq!(qwen.eog(), [248044, 248046]);
    assert_eq!(qwen.vocab_size(), 248320);
}

#[test]
fn tokens_are_bytes_and_may_cut_a_character() {
    let tokenizer = Tokenizer::from_metadata(&pocket()).unwrap();
    let ids = tokenizer.encode("🦀", Specials::AsText).unwrap();
    assert!(ids.len() > 1);
    let pieces: Vec<&[u8]> = ids.iter().map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
    assert!(std::str::from_utf8(pieces[0]).is_err());
    assert_eq!(pieces.concat(), "🦀".as_bytes());
}

#[test]
fn an_id_outside_the_vocabulary_is_an_error() {
    let tokenizer = Tokenizer::from_metadata(&pocket()).unwrap();
    for id in [4096, u32::MAX] {
        let error = tokenizer.decode(&[0, id]).unwrap_err().to_string();
        assert_eq!(error, format!("token id: {id} is outside the vocabulary of 4096 tokens"));
        assert!(tokenizer.token_bytes(id).is_err());
        assert!(!tokenizer.is_eog(id));
    }
}

#[test]
fn a_text_too_long_for_the_regex_engine_is_an_error() {
    let tokenizer = Tokenizer::from_metadata(&pocket()).unwrap();
    let error = tokenizer.encode(&" ".repeat((8 << 20) + 1), Specials::AsText).unwrap_err().to_string();
    assert_eq!(error, "text: expected at most 8388608 bytes, found 8388609");
}

/// A vocabulary of the 256 bytes, `ab`, `<|im_end|>` and `<think>`.
fn tiny() -> Metadata {
    let mut byte_tokens: Vec<String> = Vec::new();
    let mut next = 0x100;
    for byte in 0..=255u8 {
        let code = match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => byte.into(),
            _ => {
                next += 1;
                next - 1
            }
        };
        byte_tokens.push(char::from_u32(code).unwrap().to_string());
    }
    let added = ["ab", "<|im_end|>", "<think>"].map(str::to_owned);
    let tokens = byte_tokens.into_iter().chain(added).map(Value::String).collect();
    let mut types = vec![Value::I32(1); 257];
    types.extend([Value::I32(3), Value::I32(4)]);
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.ggml.model", Value::String("gpt2".into()));
    metadata.insert("tokenizer.ggml.pre", Value::String("qwen35".into()));
    metadata.insert("tokenizer.ggml.tokens", Value::Array(array(tokens)));
    metadata.insert("tokenizer.ggml.token_type", Value::Array(array(types)));
    metadata.insert("tokenizer.ggml.merges", Value::Array(Array::strings(["a b"])));
    metadata
}

#[test]
fn a_tiny_vocabulary_works() {
    let tokenizer = Tokenizer::from_metadata(&tiny()).unwrap();
    assert_eq!(tokenizer.encode("abba<think>é", Specials::Parse).unwrap(), [256, 98, 97, 258, 0xC3, 0xA9]);
    assert_eq!(tokenizer.encode("<think>", Specials::AsText).unwrap(), [60, 116, 104, 105, 110, 107, 62]);
    assert_eq!(tokenizer.decode(&[256, 257, 0, 0xFF]).unwrap(), b"ab<|im_end|>\0\xFF");
    assert_eq!(tokenizer.eog(), [257]);
}

#[test]
fn end_of_generation_is_named_by_key_or_by_control_token() {
    let mut metadata = tiny();
    metadata.insert("tokenizer.ggml.eos_token_id", Value::U32(5));
    metadata.insert("tokenizer.ggml.eot_token_id", Value::U32(3));
    let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
    assert_eq!(tokenizer.eog(), [3, 5, 257]);
    assert!(tokenizer.is_eog(5) && !tokenizer.is_eog(4));
}

/// An array of these values, all of one type.
fn array(values: Vec<Value>) -> Array {
    let kind = values.first().map_or(Kind::String, |value| value.item().kind());
    Array::new(kind, values).unwrap()
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

/// Checks that the tiny vocabulary with `key` set to `value` is refused, and with which words.
fn refused_with(key: &str, value: Value, message: &str) {
    let mut metadata = tiny();
    metadata.insert(key, value);
    let error = Tokenizer::from_metadata(&metadata).unwrap_err().to_string();
    assert!(error.contains(message), "{error:?} should say {message:?}");
}

/// The same for a change of the array under `tokenizer.ggml.` and `key`.
fn refused_after(key: &str, change: impl Fn(&mut Vec<Value>), message: &str) {
    let key = format!("tokenizer.ggml.{key}");
    let Some(Value::Array(found)) = tiny().remove(&key) else { panic!("{key}") };
    let mut values: Vec<Value> = found.iter().map(|item| item.to_value()).collect();
    change(&mut values);
    refused_with(&key, Value::Array(array(values)), message);
}

#[test]
fn unsupported_keys_are_refused_with_what_is_supported() {
    let model = "tokenizer.ggml.model: `llama` is not supported; supported: `gpt2`";
    refused_with("tokenizer.ggml.model", text("llama"), model);
    let pre = "tokenizer.ggml.pre: `qwen2` is not supported; supported: `qwen35`";
    refused_with("tokenizer.ggml.pre", text("qwen2"), pre);
    refused_with("tokenizer.ggml.pre", Value::U8(1), "expected a string, found u8");
    refused_with("tokenizer.ggml.add_bos_token", Value::Bool(true), "true is not supported");
    let eos = "tokenizer.ggml.eos_token_id";
    refused_with(eos, Value::U32(259), "eos_token_id: token 259 is out of range: 259 tokens");
    refused_with(eos, Value::I32(-1), "expected an unsigned integer");
}

#[test]
fn hostile_arrays_are_refused() {
    refused_after("tokens", |t| t[256] = text("a"), "tokens 97 and 256 are both \"a\"");
    refused_after("tokens", |t| t[97] = text("xx"), "no token 'a' for byte 0x61");
    refused_after("tokens", |t| *t = vec![Value::U8(3)], "elements should be strings, found u8");
    refused_after("tokens", Vec::clear, "259 types for 0 tokens of tokenizer.ggml.tokens");
    refused_after("token_type", |t| t.truncate(5), "5 types for 259 tokens");
    refused_after("token_type", |t| t[4] = Value::I32(-1), "elements should be unsigned integers");
    refused_after("token_type", |t| t[4] = Value::I32(7), "token 4 is of type 7; types are 1 to 6");
    refused_after("token_type", |t| t[97] = Value::I32(3), "token 97, 'a' for byte 0x61, is a control token");
    refused_after("token_type", |t| t[256] = Value::I32(3), "merge 0 names the control token \"ab\"");
    refused_after("merges", |m| m.push(text("a c")), "merge 1 names \"ac\", which is no token");
    refused_after("merges", |m| m[0] = text("a  b"), "merge 0 should be two tokens and a space between them");
    refused_after("merges", |m| m[0] = text(" ab"), "merge 0 names \"\", which is no token");
}

#[test]
fn a_missing_key_is_named() {
    for key in ["model", "pre", "tokens", "token_type", "merges"].map(|key| format!("tokenizer.ggml.{key}")) {
        let mut metadata = tiny();
        metadata.remove(&key);
        let error = Tokenizer::from_metadata(&metadata).unwrap_err().to_string();
        assert_eq!(error, format!("{key}: missing from the file's metadata"));
    }
}
