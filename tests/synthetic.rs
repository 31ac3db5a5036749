//! Synthetic models, in a shape of their own that is small enough to test: they load, run, and are the same in memory
//! and on disk.

use std::fs;

use verbatim::backend::{KvFormat, cpu::Cpu};
use verbatim::gguf::Gguf;
use verbatim::model::{self, Config, Model};
use verbatim::synthetic::{FeedForward, Recipe, Shape};

const DENSE: Shape = Shape {
    name: "tiny",
    layers: 12,
    interval: 4,
    width: 256,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    rope_dim: 16,
    key_heads: 2,
    value_heads: 4,
    state_dim: 64,
    taps: 4,
    feed_forward: FeedForward::Dense { ff: 512 },
    vocab: 700,
    tied: true,
};

/// Expert rows of 96 and 40 weights: no blocks of 256, and in the shared expert none of 32 either.
const MOE: Shape =
    Shape { feed_forward: FeedForward::Moe { experts: 8, used: 2, ff: 96, shared_ff: 40 }, tied: false, ..DENSE };

fn make(shape: Shape) -> Gguf {
    Recipe::new(shape).make(&mut |_| {}).unwrap()
}

/// The bits of the logits of `tokens`, row by row.
fn logits(gguf: &Gguf, tokens: &[u32]) -> Vec<Vec<u32>> {
    let model = Model::load(gguf, Cpu::new(1).unwrap()).unwrap();
    let mut state = model.state(tokens.len(), KvFormat::F16, 0).unwrap();
    let mut workspace = model.workspace();
    drop(model.forward(&mut workspace, &mut state, tokens, 0));
    let row = |row| {
        let mut logits = Vec::new();
        model.logits(&workspace, row, &mut logits);
        logits.into_iter().map(f32::to_bits).collect()
    };
    (0..tokens.len()).map(row).collect()
}

fn assert_same(a: &Gguf, b: &Gguf) {
    assert_eq!((a.metadata(), a.file_bytes(), a.tensors().len()), (b.metadata(), b.file_bytes(), b.tensors().len()));
    for (x, y) in a.tensors().zip(b.tensors()) {
        assert_eq!((&x.name, &x.dims, x.format), (&y.name, &y.dims, y.format));
        assert!(a.data(&x.name).unwrap()[..] == b.data(&x.name).unwrap()[..], "{}", x.name);
    }
}

#[test]
fn both_architectures_run_and_their_logits_are_of_sane_size_and_differ() {
    for shape in [DENSE, MOE] {
        let rows = logits(&make(shape), &[1, 2, 3, 1, 699, 5]);
        for (i, row) in rows.iter().enumerate() {
            let values: Vec<f64> = row.iter().map(|&bits| f64::from(f32::from_bits(bits))).collect();
            let size = (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt();
            assert!((1.0..10.0).contains(&size), "row {i} of {}: {size}", shape.architecture());
            assert!(rows[..i].iter().all(|other| other != row), "row {i} of {}", shape.architecture());
        }
    }
}

#[test]
fn the_configuration_read_from_the_file_is_the_shape() {
    let config = Config::from_metadata(make(MOE).metadata()).unwrap();
    assert_eq!((config.architecture.as_str(), config.layers.len(), config.width), ("qwen35moe", 12, 256));
    assert!(config.nextn.is_none());
    assert_eq!((config.rope_dim, &config.rope_sections[..]), (16, &[3, 3, 2, 0][..]));
    let model::FeedForward::Moe { experts, ff, shared_ff, routing } = config.feed_forward else {
        panic!("{:?}", config.feed_forward);
    };
    assert_eq!((experts, ff, shared_ff, routing.used), (8, 96, 40, 2));
}

#[test]
fn a_written_file_has_the_bytes_of_one_made_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    for shape in [DENSE, MOE] {
        let path = dir.path().join(shape.architecture());
        let recipe = Recipe::new(shape);
        let mut told = 0;
        recipe.write(&path, &mut |bytes| told += bytes).unwrap();
        let written = Gguf::open(&path).unwrap();
        assert_same(&written, &make(shape));
        assert_eq!(recipe.file_bytes().unwrap() as u64, fs::metadata(&path).unwrap().len());
        assert_eq!(told, written.tensors().map(|t| t.bytes().unwrap()).sum::<usize>());
        let again = recipe.write(&path, &mut |_| {}).unwrap_err().to_string();
        assert!(again.contains("exists already"), "{again}");
        assert_same(&Gguf::open(&path).unwrap(), &written);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_shape_cut_to_fewer_layers_has_the_first_layers_of_the_whole() {
    let (whole, cut) = (make(DENSE), make(Shape { layers: 3, ..DENSE }));
    assert_eq!(cut.tensors().filter(|t| t.name == "blk.2.attn_qkv.weight").count(), 1);
    for tensor in cut.tensors() {
        assert!(whole.data(&tensor.name).unwrap()[..] == cut.data(&tensor.name).unwrap()[..], "{}", tensor.name);
    }
    assert!(cut.tensor("blk.3.attn_q.weight").is_none());
}

#[test]
fn the_bytes_are_those_of_every_other_machine() {
    let prints = [DENSE, MOE].map(|shape| format!("{:032x}", u128::from_le_bytes(make(shape).fingerprint())));
    assert_eq!(prints, ["d5e6b1981019f973a49daf4de7ce7ac4", "f70c2173b162232287f21af36c6dcbd4"]);
}
