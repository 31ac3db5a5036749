//! Real files, made by another program.

use verbatim::gguf::{Gguf, Item};
use verbatim::quant::Format;

use crate::fixtures::{SLACK, embedded, shared};
use crate::measure::memory;

fn all_data_is_there(gguf: &Gguf) {
    assert_eq!(gguf.tensors().len(), 169);
    let sizes = gguf.tensors().map(|tensor| {
        let data = gguf.data(&tensor.name).unwrap();
        assert!(data.iter().any(|&byte| byte != 0), "{}", tensor.name);
        data.len()
    });
    let total: usize = sizes.sum();
    assert!(total < gguf.file_bytes() && total > gguf.file_bytes() * 9 / 10);
    assert_eq!(gguf.metadata().str("general.architecture").unwrap(), Some("qwen35moe"));
    let tokens = gguf.metadata().array("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens.iter().filter_map(Item::as_str).count(), 4096);
}

#[test]
fn the_embedded_pocket_model_opens_in_place() {
    let (gguf, memory) = memory(|| Gguf::open(&embedded()).unwrap());
    assert!(memory.peak < 1 << 20, "{memory:?}");
    all_data_is_there(&gguf);
    let embd = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!(embd.dims, [256, 4096]);
    assert_eq!(gguf.path(), Some(&*embedded()));
}

#[test]
fn the_pocket_models_open_in_every_format() {
    let mut fingerprints = Vec::new();
    for format in ["bf16", "Q8_0", "Q4_K_M", "Q3_K_M"] {
        let Some(path) = shared(&format!("pocket/pocket-{format}.gguf")) else {
            return;
        };
        let gguf = Gguf::open(&path).unwrap();
        all_data_is_there(&gguf);
        fingerprints.push(gguf.fingerprint());
        if format == "bf16" {
            let formats = [Ok(Format::BF16), Ok(Format::F32)];
            assert!(gguf.tensors().all(|tensor| formats.contains(&tensor.format)));
        }
    }
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 4);
}

#[test]
fn a_vocabulary_without_tensors_opens_in_little_memory() {
    let Some(path) = shared("data/vocab-qwen35.gguf") else {
        return;
    };
    let (gguf, memory) = memory(|| Gguf::open(&path).unwrap());
    let size = gguf.file_bytes();
    assert!(memory.largest <= size + SLACK && memory.peak <= (2 * size) as isize, "{memory:?}");
    assert_eq!(gguf.tensors().len(), 0);
    let tokens = gguf.metadata().array("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens.len(), 248_320);
    let types = gguf.metadata().array("tokenizer.ggml.token_type").unwrap().unwrap();
    assert!(types.iter().all(|kind| kind.as_u64().is_some_and(|kind| (1..=6).contains(&kind))));
}
