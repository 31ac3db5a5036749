//! The largest logits.
//!
//! Owns: their order. Refuses to know: what they are shown or kept for.

use draft::Token;

/// The `n` largest of `logits` with their tokens, largest first, the lower token first among equals.
pub fn top(logits: &[f32], n: usize) -> Vec<(Token, f32)> {
    let mut all: Vec<(Token, f32)> = (0..).zip(logits.iter().copied()).collect();
    let by = |a: &(Token, f32), b: &(Token, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if n < all.len() {
        all.select_nth_unstable_by(n, by);
        all.truncate(n);
    }
    all.sort_by(by);
    all
}
