//! What is said of cards where there is none, and the emulator's kernels on a real card where there is one.

use std::path::PathBuf;

use kernels::cuda::{self, Compiler};
use kernels::{Address, Arg, Driver, Emulator, Grid, Kernel};

#[test]
fn a_machine_without_a_card_says_what_is_missing() {
    match cuda::count() {
        Ok(cards) => println!("skipped: this machine has {cards} cards"),
        Err(e) => {
            let told = e.to_string();
            let reasons = ["libcuda.so.1", "shows no card", "too old", "does not start", "cuInit", "without CUDA"];
            assert!(reasons.iter().any(|reason| told.contains(reason)), "{told}");
            assert_eq!(cuda::cards(), Err(e.clone()));
            assert!(cuda::open(0, &Compiler::new(None, None)).is_err_and(|other| other == e));
            assert!(cuda::peers(0, 1).is_err());
        }
    }
    // Whatever the answer, it is one.
    println!("{:?}, {:?}, {:?}", cuda::version(), cuda::compiler_for(None, 37, (11, 4)), cuda::readings());
}

/// What a kernel leaves in `out` bytes behind its arguments: an input of `words` words, `numbers`, the output.
fn left(device: &dyn Driver, name: &'static str, grid: Grid, numbers: &[Arg], out: usize) -> Vec<u8> {
    let input: Vec<u8> =
        (0..4096u32).flat_map(|i| (0x3f80_0000 ^ i.wrapping_mul(0x9e37_79b9) >> 8).to_le_bytes()).collect();
    let (from, to) = (device.allocate(input.len()).unwrap(), device.allocate(out).unwrap());
    let address = |at: Address| Arg::At(at);
    device.upload(from.at, &input).unwrap();
    device.clear(to.at, out).unwrap();
    let args: Vec<_> = [address(from.at)].into_iter().chain(numbers.iter().copied()).chain([address(to.at)]).collect();
    device.launch(&Kernel { file: "probe", variant: "1", name }, grid, &args).unwrap();
    let mut bytes = vec![0; out];
    device.download(to.at, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_card_and_the_emulator_leave_the_same_bits() {
    let nvrtc = std::env::var_os("VERBATIM_NVRTC").map(PathBuf::from);
    let card = match cuda::open(0, &Compiler::new(nvrtc, None)) {
        Ok(card) => card,
        Err(e) => return println!("skipped: {e}"),
    };
    let emulator = Emulator::new(card.architecture(), 0).unwrap();
    let grid = |blocks, threads| Grid { blocks: [blocks, 1, 1], threads: [threads, 1], shared: 4096 };
    let cases: [(&str, Grid, &[Arg], usize); 4] = [
        ("arguments", grid(5, 256), &[Arg::Float(1.7), Arg::Int(-3), Arg::Int(1200)], 4800),
        ("shuffles", grid(1, 32), &[], 1024),
        ("trees", grid(1, 32), &[Arg::Int(1000)], 12),
        ("reverse", grid(1, 1024), &[], 4096),
    ];
    for (name, grid, numbers, out) in cases {
        let [on_card, emulated] =
            [&card as &dyn Driver, &emulator].map(|device| left(device, name, grid, numbers, out));
        assert!(on_card == emulated, "{name} on {}", card.describe());
    }
}
