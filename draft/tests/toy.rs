//! Every drafter against a toy Markov target: a drafter changes the number of passes, never a token.

use std::time::Duration;

use draft::{Block, Drafter, Guess, Head, Outcome, Plan, Scripted, Suffix, Target, Token};

/// A generator for tests: a linear congruence modulo 2^64, upper bits only.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

/// The next token is a fixed function of the last two.
struct Markov {
    next: Vec<Token>,
    vocabulary: Token,
}

impl Markov {
    fn new(vocabulary: Token, chance: &mut Chance) -> Self {
        let pairs = (vocabulary * vocabulary) as usize;
        Markov { next: (0..pairs).map(|_| chance.below(vocabulary)).collect(), vocabulary }
    }

    fn choose(&self, history: &[Token]) -> Token {
        let (a, b) = (history[history.len() - 2], history[history.len() - 1]);
        self.next[(a * self.vocabulary + b) as usize]
    }
}

struct Text(Vec<Token>);

impl Target for Text {
    fn history(&self) -> &[Token] {
        &self.0
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn guess(&mut self, _head: Head, _more: &mut dyn FnMut(Guess) -> bool) {}
}

struct Run {
    text: Vec<Token>,
    passes: usize,
    accepted: Vec<(usize, usize)>,
}

/// Greedy block-verify decoding of `count` tokens, blocks of at most `capacity`.
fn generate(model: &Markov, prompt: &[Token], count: usize, capacity: usize, drafter: &mut dyn Drafter) -> Run {
    let end = prompt.len() + count;
    let mut run = Run { text: Vec::new(), passes: 0, accepted: Vec::new() };
    let mut text = Text(prompt.to_vec());
    let mut block = Block::default();
    while text.0.len() < end {
        block.clear(capacity.min(end - text.0.len() - 1));
        drafter.propose(&mut text, &mut block);
        let kept = text.0.len();
        for i in 0..=block.len() {
            let choice = model.choose(&text.0);
            text.0.push(choice);
            if block.tokens().get(i) != Some(&choice) {
                break;
            }
        }
        let emitted = &text.0[kept..];
        let accepted = emitted.len() - 1;
        if !block.is_empty() {
            let time = Duration::ZERO;
            drafter.observe(&Outcome { drafted: block.tokens(), accepted, emitted, time });
        }
        run.passes += 1;
        run.accepted.push((block.len(), accepted));
    }
    run.text = text.0;
    run
}

fn plain(model: &Markov, prompt: &[Token], count: usize) -> Vec<Token> {
    generate(model, prompt, count, 0, &mut scripted(Plan::Empty, &[], 2)).text
}

fn cases() -> Vec<(Markov, Vec<Token>)> {
    let mut chance = Chance(1);
    (0..40)
        .map(|i| {
            let vocabulary = 2 + i % 9;
            let model = Markov::new(vocabulary, &mut chance);
            let prompt = (0..2 + chance.below(30)).map(|_| chance.below(vocabulary)).collect();
            (model, prompt)
        })
        .collect()
}

fn scripted(plan: Plan, truth: &[Token], vocabulary: Token) -> Scripted {
    Scripted::new(plan, truth.to_vec(), vocabulary as usize)
}

fn drafters(truth: &[Token], vocabulary: Token) -> Vec<Box<dyn Drafter>> {
    let steps = (0..=8).flat_map(|drafted| (0..=drafted).map(move |right| (drafted, right))).collect();
    let plans = [Plan::Empty, Plan::Oracle, Plan::Wrong, Plan::Random(3), Plan::Steps(steps), Plan::Overrun];
    let scripted = plans.into_iter().map(|plan| Box::new(scripted(plan, truth, vocabulary)) as Box<dyn Drafter>);
    let suffixes = [Suffix::new(), Suffix::warmed(truth)].map(|suffix| Box::new(suffix) as Box<dyn Drafter>);
    scripted.chain(suffixes).collect()
}

#[test]
fn every_drafter_gives_the_plain_text_at_every_block_length() {
    for (model, prompt) in cases() {
        let truth = plain(&model, &prompt, 100);
        for mut drafter in drafters(&truth, model.vocabulary) {
            for capacity in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 63] {
                drafter.reset();
                let run = generate(&model, &prompt, 100, capacity, drafter.as_mut());
                assert_eq!(run.text, truth, "{} with blocks of {capacity}", drafter.name());
                assert!(run.passes <= 100, "{} makes no progress", drafter.name());
            }
        }
    }
}

#[test]
fn every_drafter_repeats_itself_after_a_reset() {
    for (model, prompt) in cases().into_iter().take(8) {
        let truth = plain(&model, &prompt, 60);
        for mut drafter in drafters(&truth, model.vocabulary) {
            let first = generate(&model, &prompt, 60, 8, drafter.as_mut()).accepted;
            drafter.reset();
            let second = generate(&model, &prompt, 60, 8, drafter.as_mut()).accepted;
            assert_eq!(first, second, "{}", drafter.name());
        }
    }
}

#[test]
fn scripted_drafters_are_as_right_as_they_say() {
    for (model, prompt) in cases() {
        let truth = plain(&model, &prompt, 90);
        let vocabulary = model.vocabulary;
        let oracle = generate(&model, &prompt, 90, 8, &mut scripted(Plan::Oracle, &truth, vocabulary));
        assert!(oracle.accepted.iter().all(|&(drafted, accepted)| drafted == accepted));
        assert_eq!(oracle.passes, 10);
        let wrong = generate(&model, &prompt, 90, 8, &mut scripted(Plan::Wrong, &truth, vocabulary));
        assert!(wrong.accepted.iter().all(|&(_, accepted)| accepted == 0));
        let steps = [(3, 1), (0, 0), (5, 5), (8, 0), (0, 0), (1, 1)];
        let run = generate(&model, &prompt, 90, 8, &mut scripted(Plan::Steps(steps.to_vec()), &truth, vocabulary));
        assert_eq!(run.accepted[..6], steps);
        assert_eq!(run.accepted[6], steps[0], "a script starts over");
    }
}

#[test]
fn an_overrun_fills_the_block_at_the_end_of_the_truth() {
    let mut block = Block::new(6);
    scripted(Plan::Overrun, &[1, 2, 3], 4).propose(&mut Text(vec![1, 2]), &mut block);
    assert_eq!(block.tokens(), [3, 0, 0, 0, 0, 0]);
}

#[test]
fn a_loop_is_drafted_whole() {
    let mut chance = Chance(5);
    let model = Markov::new(4, &mut chance);
    let run = generate(&model, &[0, 1], 400, 16, &mut Suffix::new());
    assert!(run.passes < 60, "{} passes for a text with a period of at most 16", run.passes);
}
