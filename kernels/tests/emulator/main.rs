//! The emulated device, on kernels made to show what it does right and what it catches.
//!
//! Owns: how a test puts words on a device and gets them back. Refuses to know: the kernels of the model.

mod arithmetic;
mod faults;
mod lanes;
mod memory;
mod rebuilt;
mod streams;

use kernels::{Allocation, Arg, Driver, Emulator, Error, Grid, Kernel, Result};

/// Orders in which every correct kernel must give the same: the fixed one and three others.
const SEEDS: [u32; 4] = [0, 1, 2, 3];

fn device(seed: u32) -> Emulator {
    Emulator::new(37, seed).unwrap()
}

fn probe(name: &'static str) -> Kernel {
    Kernel { file: "probe", variant: "1", name }
}

fn line(blocks: u32, threads: u32) -> Grid {
    Grid { blocks: [blocks, 1, 1], threads: [threads, 1], shared: 0 }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

fn put(device: &Emulator, words: &[u32]) -> Allocation {
    let memory = device.allocate(4 * words.len()).unwrap();
    device.upload(memory.at, &bytes(words)).unwrap();
    memory
}

fn put_floats(device: &Emulator, floats: &[f32]) -> Allocation {
    put(device, &floats.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
}

fn room(device: &Emulator, words: usize) -> Allocation {
    device.allocate(4 * words).unwrap()
}

fn get(device: &Emulator, memory: &Allocation) -> Vec<u32> {
    get_sure(device, memory).unwrap()
}

fn get_sure(device: &Emulator, memory: &Allocation) -> Result<Vec<u32>> {
    let mut bytes = vec![0; memory.len];
    device.download(memory.at, &mut bytes)?;
    Ok(words(&bytes))
}

/// Runs a kernel on these buffers and numbers.
fn run(device: &Emulator, name: &'static str, grid: Grid, args: &[Arg]) -> Result<()> {
    device.launch(&probe(name), grid, args)?;
    device.finish()
}

fn at(memory: &Allocation) -> Arg {
    Arg::At(memory.at)
}

/// Words without a pattern, the same each time.
fn noise(count: usize, mut state: u32) -> Vec<u32> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..count).map(|_| next()).collect()
}

/// Fails unless the error says all of these.
#[track_caller]
fn says<T>(outcome: Result<T>, all: &[&str]) {
    let Err(Error(sentence)) = outcome else { panic!("no error, where one of {all:?} was expected") };
    for part in all {
        assert!(sentence.contains(part), "'{part}' is not in: {sentence}");
    }
}
