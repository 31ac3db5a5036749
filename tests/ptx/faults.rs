//! What the machine must notice.
//!
//! Owns: small kernels written by hand, each with a fault. Refuses to know: the program's kernels.

use std::sync::Arc;

use kernels::{Allocation, Arg, Driver, Grid, Kernel};

use super::driver::{Library, Machine};

const KERNEL: Kernel = Kernel { file: "hand", variant: "", name: "k" };
const THREADS: u32 = 64;

/// A kernel of two warps that is given an address of 256 bytes, which hold 0, 1, 2, ..
fn text(body: &str) -> String {
    let lines: String = body.lines().map(|line| format!("\t{}\n", line.trim())).collect();
    format!(
        ".version 7.8\n.target sm_37\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry k(\n\t.param .u64 k_param_0\n)\n.maxntid 256, 1, 1\n{{\n\
         \t.reg .pred %p<8>;\n\t.reg .b32 %r<16>;\n\t.reg .f32 %f<8>;\n\t.reg .b64 %rd<16>;\n\
         \t.shared .align 4 .b8 small[256];\n\
         \tld.param.u64 %rd1, [k_param_0];\n\tcvta.to.global.u64 %rd2, %rd1;\n\tmov.u32 %r1, %tid.x;\n\
         \tmul.wide.u32 %rd3, %r1, 4;\n\tadd.s64 %rd4, %rd2, %rd3;\n\tmov.u64 %rd5, small;\n\tadd.s64 %rd6, %rd5, %rd3;\n\
         \tand.b32 %r2, %r1, 31;\n\tmov.u32 %r3, 31;\n{lines}\tret;\n}}\n"
    )
}

/// The bytes after the kernel, as words; or what was noticed.
fn run_on(body: &str, blocks: u32) -> Result<Vec<u32>, String> {
    let mut library = Library::default();
    library.add(("hand", ""), 37, &text(body))?;
    let machine = Machine::new(37, &Arc::new(library));
    let told = |e: kernels::Error| e.0;
    let memory: Allocation = machine.allocate(256).map_err(told)?;
    let words: Vec<u8> = (0..64u32).flat_map(u32::to_le_bytes).collect();
    machine.upload(memory.at, &words).map_err(told)?;
    let grid = Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1], shared: 64 };
    machine.launch(&KERNEL, grid, &[Arg::At(memory.at)]).map_err(told)?;
    let mut bytes = vec![0; 256];
    machine.download(memory.at, &mut bytes).map_err(told)?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

fn run(body: &str) -> Result<Vec<u32>, String> {
    run_on(body, 1)
}

fn noticed(body: &str, words: &[&str]) {
    let found = run(body).unwrap_err();
    assert!(words.iter().all(|word| found.contains(word)), "{found}");
}

/// Every thread puts its word to shared memory; after `barrier` it takes that of the thread whose number differs in `bit`.
fn exchange(barrier: &str, bit: u32) -> String {
    format!(
        "ld.global.u32 %r4, [%rd4];\nst.shared.u32 [%rd6], %r4;\n{barrier}\nxor.b32 %r5, %r1, {bit};\n\
         mul.wide.u32 %rd7, %r5, 4;\nadd.s64 %rd8, %rd5, %rd7;\nld.shared.u32 %r6, [%rd8];\nst.global.u32 [%rd4], %r6;"
    )
}

#[test]
fn words_go_between_lanes_behind_a_barrier_of_the_warp_and_between_warps_behind_one_of_the_block() {
    let expected = |bit| (0..64u32).map(|thread| thread ^ bit).collect::<Vec<_>>();
    assert_eq!(run(&exchange("bar.warp.sync -1;", 1)).unwrap(), expected(1));
    assert_eq!(run(&exchange("bar.sync 0;", 33)).unwrap(), expected(33));
}

#[test]
fn a_race_between_lanes_is_noticed() {
    noticed(&exchange("", 1), &["race", "thread", "st.shared.u32", "ld.shared.u32"]);
    // Shuffles bring lanes together and order nothing.
    let shuffle = "shfl.sync.bfly.b32 %r7|%p1, %r4, 1, 31, -1;";
    noticed(&exchange(shuffle, 1), &["race"]);
}

#[test]
fn a_race_between_warps_is_noticed() {
    noticed(&exchange("bar.warp.sync -1;", 33), &["race"]);
    // A write after another warp's read.
    noticed(
        "st.shared.u32 [%rd6], %r1;\nbar.sync 0;\nld.shared.u32 %r4, [small];\nst.shared.u32 [%rd6], %r4;",
        &["race"],
    );
}

#[test]
fn two_threads_that_write_the_same_are_a_race() {
    noticed("st.shared.u32 [small], %r3;", &["race: Write", "after Write"]);
}

#[test]
fn neighbouring_bytes_are_no_race_and_the_word_of_them_is() {
    let bytes = "cvt.u64.u32 %rd7, %r1;\nadd.s64 %rd8, %rd2, %rd7;\nst.global.u8 [%rd8], %r3;\n";
    assert_eq!(run(bytes).unwrap()[15], 0x1f1f_1f1f);
    noticed(&format!("{bytes}ld.global.u32 %r4, [%rd4];"), &["race: Read", "after Write"]);
}

#[test]
fn blocks_race_for_global_memory_and_atomics_do_not() {
    let found = run_on("st.global.u32 [%rd4], %r3;", 2).unwrap_err();
    assert!(found.contains("race") && found.contains("of the block 1 before"), "{found}");
    assert_eq!(run_on("ld.global.u32 %r4, [%rd4];", 2).unwrap()[5], 5);
    // Each has shared memory of its own.
    assert_eq!(run_on("st.shared.u32 [%rd6], %r3;", 2).unwrap()[5], 5);
    let all = run_on("atom.global.max.u32 %r4, [%rd2], %r1;", 2).unwrap();
    assert_eq!(all[0], 63);
    noticed("atom.global.max.u32 %r4, [%rd2], %r1;\nbar.sync 0;\nld.global.u32 %r5, [%rd2];", &["after Atomic"]);
}

#[test]
fn what_is_read_as_constant_is_not_written_in_the_same_launch() {
    noticed("ld.global.nc.u32 %r4, [%rd4];\nst.global.u32 [%rd4], %r4;", &["race", "ReadConstant"]);
}

#[test]
fn wrong_alignment_is_noticed() {
    noticed("ld.global.v2.u32 {%r4, %r5}, [%rd2+4];", &["aligned"]);
    // A variable lies on no better boundary than it asks for.
    noticed("ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [small];", &["aligned"]);
}

#[test]
fn addresses_outside_are_noticed() {
    noticed("ld.global.u32 %r4, [%rd4+4];", &["thread 63", "in no allocation"]);
    noticed("st.shared.u32 [%rd6+-4], %r1;", &["thread 0", "in no variable"]);
    noticed("st.shared.u32 [dynamic+64], %r1;", &["in no variable"]);
    noticed("mov.u64 %rd7, 0;\nld.global.u32 %r4, [%rd7];", &["in no allocation"]);
}

#[test]
fn memory_that_nobody_wrote_decides_nothing_and_does_not_come_out() {
    noticed("ld.shared.u32 %r4, [%rd6];\nsetp.eq.s32 %p1, %r4, 0;\n@%p1 bra $end;\n$end:", &["nobody wrote"]);
    noticed("ld.shared.u32 %r4, [%rd6];\nadd.s32 %r4, %r4, 1;\nst.global.u32 [%rd4], %r4;", &["was not written"]);
    noticed("add.s32 %r4, %r5, 1;\nst.global.u32 [%rd4], %r4;", &["was not written"]);
    // Chosen away, it does no harm.
    let chosen = "ld.shared.u32 %r4, [%rd6];\nsetp.lt.u32 %p1, %r1, 64;\nselp.b32 %r5, %r3, %r4, %p1;\nst.global.u32 [%rd4], %r5;";
    assert_eq!(run(chosen).unwrap(), [31; 64]);
}

#[test]
fn lanes_and_warps_that_do_not_come_are_noticed() {
    noticed("setp.lt.u32 %p1, %r2, 7;\n@%p1 bra $end;\nbar.warp.sync -1;\n$end:", &["wait here", "have ended"]);
    noticed("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $end;\nbar.sync 0;\n$end:", &["has ended"]);
    noticed(
        "setp.lt.u32 %p1, %r1, 7;\n@%p1 bra $else;\nbar.sync 0;\nbra $end;\n$else:\nbar.sync 0;\n$end:",
        &["elsewhere"],
    );
    noticed(
        "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $else;\nbar.sync 0;\nbra $end;\n$else:\nbar.sync 0;\n$end:",
        &["another"],
    );
    noticed("mov.u32 %r4, 65535;\nshfl.sync.bfly.b32 %r5|%p1, %r1, 1, 31, %r4;", &["wait here"]);
}

#[test]
fn an_instruction_or_word_that_is_not_known_is_an_error_with_its_line() {
    for wrong in [
        "add.sat.s32 %r4, %r1, %r2;",
        "fma.rn.ftz.f32 %f1, %f1, %f1, %f1;",
        "ld.volatile.shared.u32 %r4, [%rd6];",
        "add.s32 %r99, %r1, %r2;",
        "add.s32 %rd3, %r1, %r2;",
        "add.s32 %r4, %r1;",
        "mov.u32 %r4, %clock;",
        "bra $nowhere;",
        ".local .align 4 .b8 depot[16];",
    ] {
        let found = run(wrong).unwrap_err();
        assert!(found.contains("line 24") && found.contains(wrong.trim_end_matches(';')), "{wrong}: {found}");
    }
}

#[test]
fn arguments_are_of_the_parameters_kinds() {
    let mut library = Library::default();
    library.add(("hand", ""), 37, &text("")).unwrap();
    let library = Arc::new(library);
    let grid = Grid { blocks: [1; 3], threads: [32, 1], shared: 0 };
    for args in [&[Arg::Int(1)][..], &[], &[Arg::At(0), Arg::At(0)]] {
        assert!(Machine::new(37, &library).launch(&KERNEL, grid, args).is_err(), "{args:?}");
    }
    Machine::new(37, &library).launch(&KERNEL, grid, &[Arg::At(0)]).unwrap();
    assert!(Machine::new(37, &library).launch(&KERNEL, Grid { threads: [257, 1], ..grid }, &[Arg::At(0)]).is_err());
    assert!(Machine::new(37, &library).launch(&KERNEL, Grid { shared: 49_000, ..grid }, &[Arg::At(0)]).is_err());
}
