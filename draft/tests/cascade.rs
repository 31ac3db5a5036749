//! The choice among drafters on a simulated machine: passes and guesses take times that the test hands in, so every run is
//! the same, and what a run costs beside plain decoding can be said to the last digit.

use std::time::Duration;

use draft::{Block, Cascade, Drafter, Guess, Head, Outcome, Suffix, Target, Token};

/// Milliseconds of a pass of `rows` rows.
type Cost = fn(usize) -> f64;

/// A small model: a second row costs two fifths of a pass.
fn small(rows: usize) -> f64 {
    if rows == 1 { 1.0 } else { 1.18 + 0.22 * (rows as f64 - 1.0) }
}

/// A large model: rows are cheap.
fn large(rows: usize) -> f64 {
    if rows == 1 { 100.0 } else { 108.0 + 14.0 * (rows as f64 - 1.0) }
}

/// A machine that runs a known text: a head on it is right as often as it says.
struct Machine<'a> {
    text: &'a [Token],
    at: usize,
    now: f64,
    cost: Cost,
    /// Milliseconds of a guess.
    price: f64,
    /// How sure the head is, and how often it is right.
    head: (f64, f64),
    chance: Chance,
    /// So many passes from the start, blocks take so many times as long: something else runs.
    disturbed: (usize, f64),
}

/// A generator for tests: a linear congruence modulo 2^64, upper bits only.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() * f64::from(bound)) as u32
    }
}

impl Target for Machine<'_> {
    fn history(&self) -> &[Token] {
        &self.text[..self.at]
    }

    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.now / 1e3)
    }

    fn guess(&mut self, _head: Head, more: &mut dyn FnMut(Guess) -> bool) {
        for i in self.at.. {
            self.now += self.price;
            let right = self.chance.next() < self.head.1;
            let token = self.text.get(i).filter(|_| right).copied().unwrap_or(u32::MAX - 1);
            if !more(Guess { token, confidence: self.head.0 as f32 }) {
                return;
            }
        }
    }
}

/// What a run took, and the rows of its passes.
#[derive(Debug, PartialEq)]
struct Run {
    milliseconds: f64,
    rows: Vec<usize>,
    /// Milliseconds of plain decoding.
    plain: f64,
}

impl Run {
    fn speedup(&self) -> f64 {
        self.plain / self.milliseconds
    }
}

/// Generates `text` from `prompt` tokens on.
fn run(drafter: &mut dyn Drafter, machine: &mut Machine, prompt: usize) -> Run {
    let mut block = Block::default();
    let mut rows = Vec::new();
    machine.at = prompt;
    let began = machine.now;
    while machine.at < machine.text.len() {
        block.clear(16.min(machine.text.len() - machine.at - 1));
        drafter.propose(machine, &mut block);
        let rest = &machine.text[machine.at..];
        let accepted = block.tokens().iter().zip(rest).take_while(|(a, b)| a == b).count();
        let disturbed = rows.len() < machine.disturbed.0 && !block.is_empty();
        let taken = (machine.cost)(block.len() + 1) * if disturbed { machine.disturbed.1 } else { 1.0 };
        let time = Duration::from_secs_f64(taken / 1e3);
        let emitted = &rest[..=accepted];
        drafter.observe(&Outcome { drafted: block.tokens(), accepted, emitted, time });
        rows.push(block.len() + 1);
        machine.now += taken;
        machine.at += accepted + 1;
    }
    let plain = (machine.text.len() - prompt) as f64 * (machine.cost)(1);
    Run { milliseconds: machine.now - began, rows, plain }
}

fn machine(text: &[Token], cost: Cost, price: f64, head: (f64, f64)) -> Machine<'_> {
    Machine { text, at: 0, now: 0.0, cost, price, head, chance: Chance(3), disturbed: (0, 1.0) }
}

/// Tokens without any order.
fn random_text(len: usize, vocabulary: u32) -> Vec<Token> {
    let mut chance = Chance(11);
    (0..len).map(|_| chance.below(vocabulary)).collect()
}

/// A text of which nearly all is copied from its beginning.
fn copied_text(original: usize, copies: usize) -> Vec<Token> {
    let page = random_text(original, 3000);
    page.iter().cycle().take(original * (copies + 1)).copied().collect()
}

fn auto() -> Cascade {
    Cascade::new("auto", Some(Suffix::new()), &[Head::Mtp, Head::Shallow])
}

#[test]
fn nothing_is_lost_on_a_text_that_cannot_be_guessed() {
    for (cost, unit) in [(small as Cost, 1.0), (large, 100.0)] {
        for vocabulary in [40, 300, 100_000] {
            // The heads are honest and bad, or sure of themselves and wrong.
            for head in [(0.1, 0.1), (0.9, 0.05), (0.5, 0.2)] {
                let text = random_text(600, vocabulary);
                let run = run(&mut auto(), &mut machine(&text, cost, 0.2 * unit, head), 100);
                let speedup = run.speedup();
                assert!(speedup > 0.98, "vocabulary {vocabulary}, head {head:?}, {unit} ms: {speedup}");
            }
        }
    }
}

#[test]
fn a_copy_is_drafted_in_blocks_as_long_as_they_may_be() {
    let text = copied_text(200, 4);
    for (cost, least) in [(small as Cost, 3.0), (large, 4.2)] {
        let run = run(&mut auto(), &mut machine(&text, cost, 0.2 * cost(1), (0.1, 0.1)), 200);
        assert!(run.speedup() > least, "{}", run.speedup());
        // A few passes to find out, then whole blocks but for the end.
        let whole = &run.rows[8..run.rows.len() - 6];
        // One pass without a block keeps plain decoding's cost known.
        assert!(whole.iter().filter(|&&rows| rows != 17).count() <= 1 + whole.len() / 48, "{:?}", run.rows);
    }
}

#[test]
fn a_head_is_asked_where_it_pays_and_let_alone_where_it_does_not() {
    let text = random_text(800, 100_000);
    let good = run(&mut auto(), &mut machine(&text, large, 10.0, (0.9, 0.9)), 100);
    assert!(good.speedup() > 1.8, "{}", good.speedup());
    // The same head at the price of a pass.
    let dear = run(&mut auto(), &mut machine(&text, large, 100.0, (0.9, 0.9)), 100);
    assert!(dear.speedup() > 0.98, "{}", dear.speedup());
}

#[test]
fn a_text_that_turns_is_followed() {
    let mut text = random_text(500, 100_000);
    text.extend(copied_text(100, 5));
    text.extend(random_text(300, 90_000));
    let run = run(&mut auto(), &mut machine(&text, small, 0.2, (0.1, 0.1)), 50);
    assert!(run.speedup() > 1.3, "{}", run.speedup());
    // 400 of 1,450 tokens could be copied, at best 17 a pass.
    assert!(run.rows.len() < 1450 - 340, "{} passes", run.rows.len());
}

#[test]
fn a_machine_that_was_disturbed_at_the_start_is_not_held_to_it() {
    let text = copied_text(200, 20);
    let start = |times| Machine { disturbed: (40, times), ..machine(&text, small, 0.2, (0.1, 0.1)) };
    let mut disturbed = start(3.0);
    let run = run(&mut auto(), &mut disturbed, 200);
    assert!(run.speedup() > 2.0, "{} {:?}", run.speedup(), run.rows);
    // Blocks that seemed to cost more than they could bring are tried again.
    let run = self::run(&mut auto(), &mut start(6.0), 200);
    let late = &run.rows[40 + 100..run.rows.len() - 6];
    assert!(late.iter().filter(|&&rows| rows < 15).count() <= 1 + late.len() / 48, "{:?}", run.rows);
}

#[test]
fn equal_times_give_equal_decisions_and_a_reset_forgets_the_text_alone() {
    let text = copied_text(150, 3);
    let fresh = |drafter: &mut Cascade| run(drafter, &mut machine(&text, small, 0.2, (0.6, 0.6)), 160);
    assert_eq!(fresh(&mut auto()), fresh(&mut auto()));
    let mut drafter = auto();
    fresh(&mut drafter);
    drafter.reset();
    let again = fresh(&mut drafter);
    drafter.reset();
    let third = fresh(&mut drafter);
    // What passes cost is known from the start now; it is the same on this machine.
    assert!((again.milliseconds / third.milliseconds - 1.0).abs() < 0.02, "{again:?} {third:?}");
}

#[test]
fn one_drafter_alone_has_a_budget_too() {
    let text = random_text(500, 100_000);
    for head in [Head::Shallow, Head::Mtp, Head::Model] {
        let mut alone = Cascade::new("alone", None, &[head]);
        let run = run(&mut alone, &mut machine(&text, small, 0.3, (0.8, 0.1)), 100);
        assert!(run.speedup() > 0.98, "{head:?}: {}", run.speedup());
        let mut alone = Cascade::new("alone", None, &[head]);
        let run = self::run(&mut alone, &mut machine(&text, large, 10.0, (0.95, 0.95)), 100);
        // The first forty tokens are decoded plainly.
        assert!(run.speedup() > 1.9, "{head:?}: {}", run.speedup());
    }
}

#[test]
fn what_the_block_holds_already_is_gone_on_with() {
    let text = copied_text(60, 2);
    let mut machine = machine(&text, small, 0.2, (0.5, 0.5));
    let mut drafter = auto();
    run(&mut drafter, &mut machine, 60);
    machine.at = 100;
    let mut block = Block::new(8);
    block.push(text[100], 1.0);
    block.push(text[101], 1.0);
    drafter.propose(&mut machine, &mut block);
    assert!(block.len() > 2 && text[100..].starts_with(block.tokens()), "{:?}", block.tokens());
}
