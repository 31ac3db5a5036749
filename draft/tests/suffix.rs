//! What the suffix drafter proposes, and how sure it is.

use std::time::Duration;

use draft::{Block, Drafter, Guess, Head, Outcome, Suffix, Target, Token};

struct History<'a>(&'a [Token]);

impl Target for History<'_> {
    fn history(&self) -> &[Token] {
        self.0
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn guess(&mut self, _head: Head, _more: &mut dyn FnMut(Guess) -> bool) {}
}

fn proposed(drafter: &mut Suffix, history: &[Token], capacity: usize) -> Block {
    let mut block = Block::new(capacity);
    drafter.propose(&mut History(history), &mut block);
    block
}

fn proposal(drafter: &mut Suffix, history: &[Token], capacity: usize) -> Vec<Token> {
    proposed(drafter, history, capacity).tokens().to_vec()
}

/// Lets a drafter follow a text of which it drafts nothing.
fn watch(drafter: &mut Suffix, text: &[Token], from: usize) {
    for end in from..=text.len() {
        drafter.propose(&mut History(&text[..end]), &mut Block::new(0));
        let emitted = &text[end.min(text.len() - 1)..];
        drafter.observe(&Outcome { drafted: &[], accepted: 0, emitted, time: Duration::ZERO });
    }
}

#[test]
fn nothing_is_proposed_without_a_repetition() {
    for history in [&[][..], &[1], &[1, 2, 3], &[u32::MAX - 1, 0]] {
        assert_eq!(proposal(&mut Suffix::new(), history, 8), []);
    }
}

#[test]
fn what_followed_the_longest_match_is_proposed() {
    let history = [9, 2, 3, 7, 1, 2, 3, 4, 5, 6, 8, 2, 3, 5, 1, 2, 3];
    let mut drafter = Suffix::new();
    assert_eq!(proposal(&mut drafter, &history, 4), [4, 5, 6, 8]);
    assert_eq!(drafter.matched(), 3);
}

#[test]
fn the_most_recent_occurrence_is_preferred() {
    let history = [0, 1, 2, 3, 0, 1, 2, 4, 0, 5, 1, 2];
    assert_eq!(proposal(&mut Suffix::new(), &history, 1), [4]);
}

#[test]
fn a_period_fills_the_block_from_itself() {
    let history: Vec<Token> = [1, 2, 3].repeat(9);
    let expected: Vec<Token> = [1, 2, 3].repeat(20)[..60].to_vec();
    assert_eq!(proposal(&mut Suffix::new(), &history, 60), expected);
}

#[test]
fn a_longer_match_is_trusted_more() {
    let history: Vec<Token> = (0..60).chain(0..5).collect();
    let block = proposed(&mut Suffix::new(), &history, 40);
    assert_eq!(block.tokens(), (5..45).collect::<Vec<_>>());
    assert!(block.chances()[0] + 0.05 < block.chances()[39]);
}

#[test]
fn a_copy_is_resumed_behind_the_token_that_was_changed() {
    // The model copies 1 to 9 but writes 50 for 5: no match ends in 50.
    let history = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 50];
    assert_eq!(proposal(&mut Suffix::new(), &history, 3), [6, 7, 8]);
    assert_eq!(proposal(&mut Suffix::new(), &[&history[..], &[6]].concat(), 3), [7, 8, 9]);
}

#[test]
fn guesses_go_on_behind_what_the_block_already_holds() {
    let history = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let mut block = Block::new(5);
    assert!(block.push(3, 0.5) && block.push(4, 0.5));
    Suffix::new().propose(&mut History(&history), &mut block);
    assert_eq!(block.tokens(), [3, 4, 5, 6, 7]);
}

#[test]
fn a_block_ends_where_a_token_is_not_worth_its_row() {
    let history: Vec<Token> = (0..60).chain(0..5).collect();
    let whole = proposed(&mut Suffix::new(), &history, 16);
    let mut block = Block::new(16);
    block.set_terms(0.0, [0.0, 0.0, 0.0, 1.0]);
    Suffix::new().propose(&mut History(&history), &mut block);
    assert_eq!((block.tokens(), block.chances()), (&whole.tokens()[..3], &whole.chances()[..3]));
}

#[test]
fn what_is_not_proposed_is_learnt_from_all_the_same() {
    let copied: Vec<Token> = (0..200).chain(0..100).collect();
    let contradicted: Vec<Token> = (0..200).chain((0..100).flat_map(|i| [2 * i, 2 * i + 1, 300 + i])).collect();
    let chance = |text: &[Token]| {
        let mut drafter = Suffix::new();
        watch(&mut drafter, text, 201);
        let end: Vec<Token> = text.iter().copied().chain([500, 120, 121]).collect();
        proposed(&mut drafter, &end, 1).chances()[0]
    };
    assert!(chance(&copied) > chance(&contradicted));
}

#[test]
fn a_truncated_or_replaced_history_is_indexed_anew() {
    let mut drafter = Suffix::new();
    assert_eq!(proposal(&mut drafter, &[1, 2, 3, 4, 1, 2], 1), [3]);
    assert_eq!(proposal(&mut drafter, &[1, 2, 3], 8), []);
    assert_eq!(proposal(&mut drafter, &[7, 1, 2, 9, 9, 1, 2], 1), [9]);
}

#[test]
fn a_corpus_is_proposed_from_where_it_knows_a_longer_match_than_the_text() {
    let corpus = [1, 2, 3, 4, 5, u32::MAX, 6, 7, 8, u32::MAX];
    let mut drafter = Suffix::warmed(&corpus);
    assert_eq!(proposal(&mut drafter, &[9, 2, 3], 2), [4, 5]);
    assert_eq!(drafter.matched(), 2);
    assert_eq!(proposal(&mut Suffix::warmed(&corpus), &[2, 3, 6, 9, 2, 3], 1), [6]);
    assert_eq!(proposal(&mut Suffix::warmed(&corpus), &[4, 6, 9, 1, 2, 3, 4], 1), [5]);
}

#[test]
fn a_match_does_not_cross_documents() {
    let mut drafter = Suffix::warmed(&[1, 2, 3, u32::MAX, 4, 5, u32::MAX]);
    assert_eq!(proposal(&mut drafter, &[9, 2, 3], 8), []);
    proposal(&mut drafter, &[9, 2, 3, 4], 8);
    assert_eq!(drafter.matched(), 1);
}

#[test]
fn reset_forgets_the_text_and_what_was_learnt_but_not_the_corpus() {
    let corpus: Vec<Token> = (0..40).collect();
    let text: Vec<Token> = (0..40).chain((0..30).flat_map(|i| [i, i + 1, 90])).chain([1, 2, 3]).collect();
    for mut drafter in [Suffix::new(), Suffix::warmed(&corpus)] {
        let fresh = proposed(&mut drafter, &[0, 1, 2, 3, 0, 1], 16);
        watch(&mut drafter, &text, 41);
        drafter.reset();
        assert_eq!(proposed(&mut drafter, &[0, 1, 2, 3, 0, 1], 16), fresh);
    }
}

#[test]
fn every_chance_is_a_probability_and_the_block_is_worth_having() {
    let mut random = 1u64;
    let mut drafter = Suffix::warmed(&[0, 1, 2, u32::MAX, 2, 1, 0, u32::MAX]);
    let mut history = Vec::new();
    for _ in 0..3000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        history.push(((random >> 33) % 3) as Token);
        let block = proposed(&mut drafter, &history, 32);
        assert!(block.chances().iter().all(|chance| (0.0..=1.0).contains(chance)));
        assert!(block.reach() >= 1.0 / 32.0 && !block.tokens().contains(&u32::MAX));
    }
}
