//! Barriers of the warp taken out of the kernels: the record of races notices each, whatever order threads run in.
//!
//! Owns: which barriers, and the cases that come past them. Refuses to know: how a race is found.

use kernels::Change;

use super::compiled::{Unit, compare, compiler, library};

/// A barrier that is taken out.
struct Missing {
    what: &'static str,
    architecture: u32,
    unit: Unit,
    change: Change<'static>,
    /// What the case's name begins with.
    case: &'static str,
}

const MISSING: [Missing; 7] = [
    Missing {
        what: "router: the chosen one is set below everything while lanes still read it",
        architecture: 37,
        unit: ("moe", ""),
        change: Change { file: "moe.cu", from: "order nothing.\n            __syncwarp(FULL);", to: "order nothing." },
        case: "8 of 64 experts, 5 rows, Q8_0",
    },
    Missing {
        what: "router: the next choice does not wait for the last",
        architecture: 37,
        unit: ("moe", ""),
        change: Change {
            file: "moe.cu",
            from: "p[chosen] = -1.0f;\n            }\n            __syncwarp(FULL);",
            to: "p[chosen] = -1.0f;\n            }",
        },
        case: "8 of 64 experts, 5 rows, Q8_0",
    },
    Missing {
        what: "rotation: does not wait for the norm",
        architecture: 37,
        unit: ("attention", ""),
        change: Change {
            file: "attention.cu",
            from: "scale), weight[i]);\n    __syncwarp(FULL);",
            to: "scale), weight[i]);",
        },
        case: "attention 4 on 2, 64 wide, f16, [3, 1, 5]",
    },
    Missing {
        what: "products of lanes: activations are read before they are staged",
        architecture: 61,
        unit: ("product_dp4a", "Q4_K"),
        change: Change {
            file: "product.cuh",
            from: "staged.store(area);\n        __syncwarp();",
            to: "staged.store(area);",
        },
        case: "Q4_K product, 9 blocks",
    },
    Missing {
        what: "products of lanes: activations are staged while others are read",
        architecture: 61,
        unit: ("product_dp4a", "Q4_K"),
        change: Change { file: "product.cuh", from: "if ((k + UNROLL) % STEP == 0) __syncwarp();", to: "" },
        case: "Q4_K product, 9 blocks",
    },
    Missing {
        what: "tensor products of small blocks: sums are read before they are there",
        architecture: 80,
        unit: ("product_mma", "Q5_0"),
        change: Change {
            file: "product_mma.cu",
            from: "(area, -F::CENTRE);\n        __syncwarp();",
            to: "(area, -F::CENTRE);",
        },
        case: "Q5_0 product, 9 blocks",
    },
    Missing {
        what: "tensor products: sums are read before they are there",
        architecture: 80,
        unit: ("product_mma", "Q4_K"),
        change: Change {
            file: "product_mma.cu",
            from: "F::MIN ? 1.0f : -F::CENTRE);\n        __syncwarp();",
            to: "F::MIN ? 1.0f : -F::CENTRE);",
        },
        case: "Q4_K product, 9 blocks",
    },
];

#[test]
fn a_barrier_of_a_warp_that_is_taken_out_is_a_race() {
    let Some(compiler) = compiler() else { return };
    for Missing { what, architecture, unit, change, case } in MISSING {
        let library = library(&compiler, architecture, Some((unit, change)));
        let wrong = compare(&library, architecture, 1, |_, name| name.starts_with(case));
        println!("{what}: {}", wrong.first().map_or("NOTHING", String::as_str));
        assert!(!wrong.is_empty() && wrong.iter().any(|line| line.contains("race: ")), "{what}: {wrong:?}");
    }
}
