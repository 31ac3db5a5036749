//! The instructions that only compute.
//!
//! Owns: their opcodes, letter for letter. Refuses to know: operands, memory, lanes that meet. What is not listed here is no such
//! instruction: nothing is skipped.

use super::arithmetic as math;
use super::code::Op;

/// An operation on the operands' words, for all lanes.
macro_rules! lanes {
    ($op:ident, $a:ident, $f:expr) => {
        Op::$op(|x| {
            std::array::from_fn(|lane| {
                let $a = x[lane];
                $f
            })
        })
    };
    ($op:ident, $a:ident, $b:ident, $f:expr) => {
        Op::$op(|x, y| {
            std::array::from_fn(|lane| {
                let ($a, $b) = (x[lane], y[lane]);
                $f
            })
        })
    };
    ($op:ident, $a:ident, $b:ident, $c:ident, $f:expr) => {
        Op::$op(|x, y, z| {
            std::array::from_fn(|lane| {
                let ($a, $b, $c) = (x[lane], y[lane], z[lane]);
                $f
            })
        })
    };
}

/// A condition on the operands' words, as a mask of lanes.
macro_rules! mask {
    ($op:ident, $a:ident, $b:ident, $f:expr) => {
        Op::$op(|x, y| {
            (0..32).fold(0, |mask, lane| {
                let ($a, $b) = (x[lane], y[lane]);
                mask | u32::from($f) << lane
            })
        })
    };
}

/// The instruction of an opcode, if it is one that only computes.
pub fn op(opcode: &str) -> Option<Op> {
    integers(opcode).or_else(|| floats(opcode)).or_else(|| wides(opcode)).or_else(|| conditions(opcode))
}

fn integers(opcode: &str) -> Option<Op> {
    Some(match opcode {
        "mov.u32" | "mov.b32" | "mov.f32" => lanes!(S, a, a),
        "not.b32" => lanes!(S, a, !a),
        "cvt.s32.s8" => lanes!(S, a, a as i8 as u32),
        "cvt.s32.s16" => lanes!(S, a, a as i16 as u32),
        "cvt.u16.u32" | "cvt.u32.u16" => lanes!(S, a, a & 0xffff),
        "add.s32" => lanes!(Ss, a, b, a.wrapping_add(b)),
        "sub.s32" => lanes!(Ss, a, b, a.wrapping_sub(b)),
        "mul.lo.s32" => lanes!(Ss, a, b, a.wrapping_mul(b)),
        "div.u32" => lanes!(Ss, a, b, math::divide(a, b)),
        "rem.u32" => lanes!(Ss, a, b, math::remainder(a, b)),
        "min.u32" => lanes!(Ss, a, b, a.min(b)),
        "max.u32" => lanes!(Ss, a, b, a.max(b)),
        "and.b32" | "and.b16" => lanes!(Ss, a, b, a & b),
        "or.b32" => lanes!(Ss, a, b, a | b),
        "xor.b32" => lanes!(Ss, a, b, a ^ b),
        "shl.b32" => lanes!(Ss, a, b, math::shl(a, b)),
        "shr.u32" => lanes!(Ss, a, b, math::shr(a, b)),
        "shr.s32" => lanes!(Ss, a, b, math::shr_signed(a, b)),
        "mad.lo.s32" => lanes!(Sss, a, b, c, a.wrapping_mul(b).wrapping_add(c)),
        "bfe.u32" => lanes!(Sss, a, b, c, math::extract(a, b, c)),
        "bfe.s32" => lanes!(Sss, a, b, c, math::extract_signed(a, b, c)),
        "prmt.b32" => lanes!(Sss, a, b, c, math::permute(a, b, c)),
        "dp4a.s32.s32" => lanes!(Sss, a, b, c, math::dot(a, b, c)),
        _ => return None,
    })
}

fn floats(opcode: &str) -> Option<Op> {
    Some(match opcode {
        "neg.f32" => lanes!(S, a, a ^ 0x8000_0000),
        "abs.f32" => lanes!(S, a, a & 0x7fff_ffff),
        "sqrt.rn.f32" => lanes!(S, a, math::sqrt(a)),
        "add.rn.f32" => lanes!(Ss, a, b, math::add(a, b)),
        "sub.rn.f32" => lanes!(Ss, a, b, math::sub(a, b)),
        "mul.rn.f32" => lanes!(Ss, a, b, math::mul(a, b)),
        "div.rn.f32" => lanes!(Ss, a, b, math::div(a, b)),
        "max.f32" => lanes!(Ss, a, b, math::max(a, b)),
        "fma.rn.f32" => lanes!(Sss, a, b, c, math::fma(a, b, c)),
        "cvt.f32.f16" => lanes!(S, a, math::half_to_single(a)),
        "cvt.rn.f16.f32" => lanes!(S, a, math::single_to_half(a)),
        "cvt.rn.f32.s32" => lanes!(S, a, (a as i32 as f32).to_bits()),
        "cvt.rn.f32.u32" => lanes!(S, a, (a as f32).to_bits()),
        "cvt.rzi.s32.f32" => lanes!(S, a, math::truncate(a)),
        "cvt.rni.s32.f32" => lanes!(S, a, math::round(a)),
        _ => return None,
    })
}

fn wides(opcode: &str) -> Option<Op> {
    Some(match opcode {
        // Addresses of global memory are generic addresses as they are.
        "mov.u64" | "cvta.to.global.u64" => lanes!(W, a, a),
        "cvta.shared.u64" => lanes!(W, a, a.wrapping_add(super::code::SHARED_WINDOW)),
        "add.s64" => lanes!(Ww, a, b, a.wrapping_add(b)),
        "sub.s64" => lanes!(Ww, a, b, a.wrapping_sub(b)),
        "mul.lo.s64" => lanes!(Ww, a, b, a.wrapping_mul(b)),
        "and.b64" => lanes!(Ww, a, b, a & b),
        "or.b64" => lanes!(Ww, a, b, a | b),
        "xor.b64" => lanes!(Ww, a, b, a ^ b),
        "shl.b64" => lanes!(WsToW, a, b, math::shl_wide(a, b)),
        "shr.u64" => lanes!(WsToW, a, b, math::shr_wide(a, b)),
        "cvt.u64.u32" => lanes!(SToW, a, u64::from(a)),
        "cvt.s64.s32" => lanes!(SToW, a, i64::from(a as i32) as u64),
        "cvt.u32.u64" => lanes!(WToS, a, a as u32),
        "mul.wide.u32" => lanes!(SsToW, a, b, u64::from(a) * u64::from(b)),
        "mul.wide.s32" => lanes!(SsToW, a, b, (i64::from(a as i32) * i64::from(b as i32)) as u64),
        _ => return None,
    })
}

fn conditions(opcode: &str) -> Option<Op> {
    Some(match opcode {
        "setp.eq.s32" | "setp.eq.b32" => mask!(SsToP, a, b, a == b),
        "setp.ne.s32" => mask!(SsToP, a, b, a != b),
        "setp.lt.u32" | "setp.lt.u16" => mask!(SsToP, a, b, a < b),
        "setp.le.u32" => mask!(SsToP, a, b, a <= b),
        "setp.gt.u32" => mask!(SsToP, a, b, a > b),
        "setp.ge.u32" => mask!(SsToP, a, b, a >= b),
        "setp.lt.s32" => mask!(SsToP, a, b, (a as i32) < b as i32),
        "setp.gt.s32" => mask!(SsToP, a, b, a as i32 > b as i32),
        "setp.lt.f32" => mask!(SsToP, a, b, math::lt(a, b)),
        "setp.gt.f32" => mask!(SsToP, a, b, math::gt(a, b)),
        "setp.nan.f32" => mask!(SsToP, a, b, math::is_nan(a) || math::is_nan(b)),
        "setp.num.f32" => mask!(SsToP, a, b, !math::is_nan(a) && !math::is_nan(b)),
        "setp.eq.s64" => mask!(WwToP, a, b, a == b),
        "setp.ne.s64" => mask!(WwToP, a, b, a != b),
        "mov.pred" => Op::P(|a, _| a),
        "not.pred" => Op::P(|a, _| !a),
        "and.pred" => Op::P(|a, b| a & b),
        "or.pred" => Op::P(|a, b| a | b),
        "xor.pred" => Op::P(|a, b| a ^ b),
        "selp.b32" | "selp.u32" | "selp.f32" => Op::SelectS,
        "selp.b64" => Op::SelectW,
        _ => return None,
    })
}
