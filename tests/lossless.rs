//! Whatever a drafter guesses, the tokens are those of plain decoding, they end where plain decoding ends, and the counts
//! are those that can be worked out without the model.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use draft::{Block, Decision, Drafter, Guess, Head, Outcome, Plan, Scripted, Suffix, Target, Token};
use support::Spec;
use support::random::Random;
use support::runs::{generate, plain, pocket, sequence, settings};
use verbatim::backend::cpu::Cpu;
use verbatim::constraint::{Constraint, Mask};
use verbatim::engine::{Finish, Metrics, Sampling, Sequence, Unwatched};
use verbatim::model::Model;

/// Block lengths around powers of two.
const BLOCKS: [usize; 11] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 63];

/// A model, a prompt, and its true continuation: no token of the first ones comes twice, so that each can be an end.
struct Case {
    model: Arc<Model<Cpu>>,
    prompt: Vec<Token>,
    output: Vec<Token>,
}

impl Case {
    fn new(len: usize) -> Case {
        const DISTINCT: usize = 12;
        let model = Spec::mixed().model();
        let seeds = 0..1000;
        let tried = seeds.map(|seed| {
            let prompt = Random::new(seed).tokens(6, model.vocab());
            let output = plain(&model, &prompt, DISTINCT);
            (prompt, output)
        });
        let distinct = |(_, out): &(_, Vec<Token>)| (0..DISTINCT).all(|i| !out[..i].contains(&out[i]));
        let (prompt, _) = tried.into_iter().find(distinct).expect("some prompt has a varied reply");
        let output = plain(&model, &prompt, len);
        Case { model, prompt, output }
    }

    fn truth(&self) -> Vec<Token> {
        [&self.prompt[..], &self.output].concat()
    }

    fn drafter(&self, plan: Plan) -> Box<dyn Drafter> {
        Box::new(Scripted::new(plan, self.truth(), self.model.vocab()))
    }

    /// A sequence that drafts by `plan`, up to `block` tokens, in a context of `context`.
    fn start(&self, plan: Plan, block: usize, context: usize) -> Sequence<Cpu> {
        sequence(&self.model, settings(context, block), Some(self.drafter(plan)), &self.prompt)
    }

    /// Text and state are those of plain decoding after `n` tokens of output.
    fn compare(&self, sequence: &Sequence<Cpu>, n: usize, what: &str) {
        assert_eq!(sequence.tokens()[self.prompt.len()..], self.output[..n], "{what}");
        let mut slow = self::sequence(&self.model, sequence.settings(), None, &self.prompt);
        generate(&mut slow, n, |_| false);
        assert_eq!(sequence.tokens(), slow.tokens(), "{what}");
        assert!(sequence.snapshot() == slow.snapshot(), "{what}: state after {n} tokens");
    }
}

/// What a drafter may see, without a model behind it.
struct Seen<'a>(&'a [Token]);

impl Target for Seen<'_> {
    fn history(&self) -> &[Token] {
        self.0
    }
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn guess(&mut self, _head: Head, _more: &mut dyn FnMut(Guess) -> bool) {}
}

/// (passes, drafted, accepted) of a drafter on a known text: acceptance without a model.
fn offline(drafter: &mut dyn Drafter, truth: &[Token], from: usize, block: usize) -> (usize, usize, usize) {
    let (mut at, mut sums) = (from, (0, 0, 0));
    let mut guess = Block::new(block);
    drafter.reset();
    while at < truth.len() {
        let left = truth.len() - at;
        guess.clear(block.min(left - 1));
        drafter.propose(&mut Seen(&truth[..at]), &mut guess);
        let drafted = guess.tokens();
        let accepted = drafted.iter().zip(&truth[at..]).take_while(|(a, b)| a == b).count();
        let emitted = &truth[at..at + accepted + 1];
        drafter.observe(&Outcome { drafted, accepted, emitted, time: Duration::ZERO });
        sums = (sums.0 + 1, sums.1 + drafted.len(), sums.2 + accepted);
        at += accepted + 1;
    }
    sums
}

fn sums(m: &Metrics) -> (usize, usize, usize) {
    assert_eq!(m.emitted, m.accepted + m.bonus);
    assert_eq!(m.rows, m.passes + m.drafted);
    assert_eq!(m.accepted_at.iter().sum::<usize>(), m.accepted);
    assert_eq!(m.drafted_at.iter().sum::<usize>(), m.drafted);
    assert!(m.accepted <= m.drafted);
    (m.passes, m.drafted, m.accepted)
}

fn plans() -> Vec<Plan> {
    vec![Plan::Oracle, Plan::Wrong, Plan::Empty, Plan::Overrun, Plan::Random(1), Plan::Random(2)]
}

#[test]
fn every_drafter_and_block_length_gives_the_tokens_of_plain_decoding_and_the_counts_of_the_known_text() {
    const LEN: usize = 48;
    let case = Case::new(LEN);
    let truth = case.truth();
    for block in BLOCKS {
        for plan in plans() {
            let what = format!("{plan:?}, blocks of {block}");
            let mut sequence = case.start(plan.clone(), block, truth.len());
            let (out, finish) = generate(&mut sequence, LEN, |_| false);
            assert_eq!((&out, finish), (&case.output, Some(Finish::Length)), "{what}");
            let counted = sums(sequence.metrics());
            let known = offline(&mut *case.drafter(plan), &truth, case.prompt.len(), block);
            assert_eq!(counted, known, "{what}: passes, drafted, accepted");
            case.compare(&sequence, LEN, &what);
        }
    }
}

#[test]
fn an_oracle_needs_one_pass_for_each_block_and_its_bonus() {
    let case = Case::new(60);
    for block in [1, 4, 9] {
        let mut sequence = case.start(Plan::Oracle, block, 100);
        generate(&mut sequence, 60, |_| false);
        let m = sequence.metrics();
        assert_eq!(m.passes, 60usize.div_ceil(block + 1));
        assert_eq!((m.accepted, m.bonus), (m.drafted, m.passes));
        assert_eq!(m.acceptance(), 1.0);
    }
}

#[test]
fn a_hundred_empty_drafts_go_on_by_one_token_each_and_then_a_hit_counts() {
    let case = Case::new(110);
    let mut script = vec![(0, 0); 100];
    script.push((4, 4));
    let mut sequence = case.start(Plan::Steps(script), 8, 200);
    for i in 1..=100 {
        assert_eq!(sequence.step(1000, &mut |_| None).emitted, case.output[i - 1..i]);
        assert_eq!(sequence.tokens().len(), case.prompt.len() + i);
    }
    assert_eq!(sequence.metrics().drafted_passes, 0);
    assert_eq!(sequence.metrics().acceptance(), 0.0);
    assert_eq!(sequence.step(1000, &mut |_| None).emitted, case.output[100..105]);
    let m = sequence.metrics();
    assert_eq!((m.passes, m.drafted_passes, m.drafted, m.accepted), (101, 1, 4, 4));
    case.compare(&sequence, 105, "after the hit");
}

/// Always drafts the same tokens, whatever came before.
struct Stubborn(Vec<Token>);

impl Drafter for Stubborn {
    fn name(&self) -> &'static str {
        "stubborn"
    }
    fn propose(&mut self, _target: &mut dyn Target, block: &mut Block) {
        let _ = self.0.iter().all(|&t| block.push(t, 1.0));
    }
    fn observe(&mut self, _outcome: &Outcome) {}
    fn prefilled(&mut self, _rows: usize, _time: Duration) {}
    fn decision(&self) -> Decision {
        Decision::default()
    }
    fn reset(&mut self) {}
}

#[test]
fn a_tie_goes_to_the_lowest_token_in_every_path_and_every_pass_goes_on() {
    const LEN: usize = 40;
    let first = Case::new(LEN);
    // The token said most often, and two doubles of its row in the output matrix: one before it, one after it.
    let count = |t: Token| first.output.iter().filter(|&&o| o == t).count();
    let often = *first.output.iter().max_by_key(|&&t| count(t)).unwrap();
    let unused = |range: std::ops::Range<u32>| range.into_iter().find(|t| !first.output.contains(t)).unwrap();
    let (low, high) = (unused(0..often), unused(often + 1..512));
    let mut file = Spec::mixed().build();
    let row = file.row_mut("output.weight", often as usize).to_vec();
    file.row_mut("output.weight", low as usize).copy_from_slice(&row);
    file.row_mut("output.weight", high as usize).copy_from_slice(&row);
    let model = file.model();
    let case = Case { output: plain(&model, &first.prompt, LEN), prompt: first.prompt.clone(), model };
    assert!(case.output.contains(&low), "the tie is reached");
    assert!(!case.output.contains(&often) && !case.output.contains(&high));
    let stubborn = |tokens: Vec<Token>| -> Box<dyn Drafter> { Box::new(Stubborn(tokens)) };
    let mut drafters = vec![
        stubborn(vec![often; 8]),
        stubborn(vec![high; 8]),
        stubborn(vec![low; 8]),
        stubborn(vec![low, often, low, high]),
        Box::new(Suffix::new()),
    ];
    drafters.extend(plans().into_iter().map(|p| case.drafter(p)));
    for drafter in drafters {
        let name = drafter.name();
        let mut sequence = sequence(&case.model, settings(100, 8), Some(drafter), &case.prompt);
        // `generate` asserts that every pass emits.
        let (out, _) = generate(&mut sequence, LEN, |_| false);
        assert_eq!(out, case.output, "{name}");
        case.compare(&sequence, LEN, name);
    }
}

#[test]
fn drafts_that_are_no_tokens_of_the_vocabulary_end_the_block() {
    let case = Case::new(30);
    for bad in [512, u32::MAX] {
        let tokens = vec![case.output[0], bad, case.output[2]];
        let mut sequence = sequence(&case.model, settings(100, 8), Some(Box::new(Stubborn(tokens))), &case.prompt);
        let step = sequence.step(100, &mut |_| None);
        assert_eq!(step.emitted, case.output[..2]);
        assert_eq!(sequence.metrics().drafted, 1);
        generate(&mut sequence, 28, |_| false);
        case.compare(&sequence, 30, "bad drafts");
    }
}

#[test]
fn a_token_limit_is_exact_under_any_drafter() {
    const K: usize = 4;
    let case = Case::new(K + 8);
    for max in [0, 1, 2, K, K + 1, K + 2] {
        for plan in plans() {
            let what = format!("{plan:?}, limit {max}");
            let mut sequence = case.start(plan, K, 100);
            let (out, finish) = generate(&mut sequence, max, |_| false);
            assert_eq!((out.len(), finish), (max, Some(Finish::Length)), "{what}");
            assert_eq!(sequence.metrics().emitted, max, "{what}");
            case.compare(&sequence, max, &what);
        }
    }
}

#[test]
fn an_end_of_text_inside_an_accepted_block_ends_the_output_there() {
    const K: usize = 5;
    let case = Case::new(30);
    for at in 0..12 {
        let end = case.output[at];
        for plan in plans() {
            let what = format!("{plan:?}, end at {at}");
            let mut sequence = case.start(plan.clone(), K, 100);
            let (out, finish) = generate(&mut sequence, 25, |t| t == end);
            assert_eq!((&out[..], finish), (&case.output[..=at], Some(Finish::Stop)), "{what}");
            case.compare(&sequence, at + 1, &what);
            // Going on as if it were no end is plain decoding too.
            let (out, _) = generate(&mut sequence, 10, |_| false);
            assert_eq!(out, case.output[at + 1..at + 11], "{what}");
            case.compare(&sequence, at + 11, &what);
        }
    }
}

#[test]
fn an_end_is_seen_before_the_token_limit_and_before_the_end_of_the_context() {
    let case = Case::new(12);
    let end = case.output[2];
    for (max, context) in [(5, 100), (3, 100), (100, 6 + 5), (100, 6 + 3)] {
        for plan in plans() {
            let mut sequence = case.start(plan, 6, context);
            let (out, finish) = generate(&mut sequence, max, |t| t == end);
            assert_eq!((&out[..], finish), (&case.output[..3], Some(Finish::Stop)));
        }
    }
}

#[test]
fn the_end_of_the_context_is_a_clean_length_finish() {
    const K: usize = 6;
    let case = Case::new(K + 8);
    for room in [0, 1, 2, K - 1, K, K + 1, K + 2] {
        for plan in plans() {
            let what = format!("{plan:?}, room for {room}");
            let mut sequence = case.start(plan, K, case.prompt.len() + room);
            let (out, finish) = generate(&mut sequence, usize::MAX, |_| false);
            assert_eq!((out.len(), finish), (room, Some(Finish::Length)), "{what}");
            case.compare(&sequence, room, &what);
            let step = sequence.step(10, &mut |_| None);
            assert_eq!((step.emitted.len(), step.finish), (0, Some(Finish::Length)), "{what}");
        }
    }
}

#[test]
fn a_scripted_run_gives_the_counts_worked_out_by_hand() {
    let case = Case::new(30);
    let script = vec![(4, 2), (0, 0), (3, 3), (5, 0), (4, 4)];
    let mut sequence = case.start(Plan::Steps(script), 8, 100);
    // 3 + 1 + 4 + 1 tokens; then an end that is the second of four right tokens.
    let end = case.output[10];
    let (out, finish) = generate(&mut sequence, 100, |t| t == end);
    assert_eq!((out.len(), finish), (11, Some(Finish::Stop)));
    let m = sequence.metrics();
    assert_eq!((m.passes, m.drafted_passes, m.rows), (5, 4, 21));
    assert_eq!((m.drafted, m.accepted, m.bonus, m.emitted), (16, 7, 4, 11));
    assert_eq!(m.drafted_at, [4, 4, 4, 3, 1]);
    assert_eq!(m.accepted_at, [3, 3, 1]);
    assert_eq!(m.lengths, [1, 0, 2, 1]);
    assert_eq!((m.acceptance(), m.tokens_per_pass()), (7.0 / 16.0, 11.0 / 5.0));
    // A new prompt counts anew.
    sequence.prompt(&case.prompt, &mut Unwatched).unwrap();
    assert_eq!(sequence.metrics(), &Metrics::default());
}

/// 25 prompts of the trained model: real ones, cut ones, and two after each other.
fn prompts() -> Vec<Vec<Token>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden/prompts.json");
    let list: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let ids = |p: &serde_json::Value| -> Vec<Token> { serde_json::from_value(p["ids"].clone()).unwrap() };
    let whole: Vec<Vec<Token>> = list.as_array().unwrap().iter().map(ids).collect();
    let cut = whole.iter().map(|p| p[..p.len() * 3 / 5].to_vec());
    let pairs = (0..5).map(|i| [&whole[i][..], &whole[i + 1]].concat());
    whole.iter().cloned().chain(cut).chain(pairs).collect()
}

/// One prompt of the trained model, `len` tokens, by each block length of `blocks`: copies, right guesses, random ones.
fn trained(model: &Arc<Model<Cpu>>, prompt: &[Token], len: usize, blocks: &[usize]) {
    let context = prompt.len() + len;
    let dir = tempfile::tempdir().unwrap();
    let start = dir.path().join("start");
    let mut slow = sequence(model, settings(context, 0), None, prompt);
    // The prompt is evaluated once for all runs.
    slow.save(&start).unwrap();
    let (output, _) = generate(&mut slow, len, |_| false);
    let truth = [prompt, &output].concat();
    for &block in blocks {
        let scripted = |plan| Box::new(Scripted::new(plan, truth.clone(), model.vocab()));
        let drafters: [Box<dyn Drafter>; 3] =
            [Box::new(Suffix::new()), scripted(Plan::Oracle), scripted(Plan::Random(block as u64))];
        for drafter in drafters {
            let name = drafter.name();
            let what = format!("{name} in blocks of {block}");
            let mut fast = Sequence::new(model.clone(), settings(context, block), Some(drafter)).unwrap();
            fast.resume(&start).unwrap();
            let (out, finish) = generate(&mut fast, len, |_| false);
            assert_eq!((&out, finish), (&output, Some(Finish::Length)), "{what}");
            assert!(fast.snapshot() == slow.snapshot(), "{what}: state");
            if name == "suffix" {
                let known = offline(&mut Suffix::new(), &truth, prompt.len(), block);
                assert_eq!(sums(fast.metrics()), known, "{what}: passes, drafted, accepted");
            }
        }
    }
}

#[test]
fn the_trained_model_says_the_same_on_25_prompts_under_every_block_length() {
    let model = pocket(1);
    let prompts = prompts();
    assert_eq!(prompts.len(), 25);
    for (i, prompt) in prompts.iter().enumerate() {
        // Each prompt under two of the eleven lengths: every length meets several prompts of each kind.
        let blocks = [0, 4].map(|j| BLOCKS[(i + j) % BLOCKS.len()]);
        trained(&model, prompt, 48, &blocks);
    }
}

#[test]
fn the_trained_model_says_the_same_for_hundreds_of_tokens_under_every_block_length() {
    let model = pocket(1);
    trained(&model, &prompts()[1], 200, &BLOCKS);
}

/// Allows some tokens only, others from time to time: a constraint without a grammar.
struct Every {
    mask: Mask,
    place: usize,
}

impl Every {
    fn new() -> Every {
        Every { mask: Mask::none(512), place: 0 }
    }

    fn allows(place: usize, token: Token) -> bool {
        (token as usize + place).is_multiple_of(3)
    }
}

impl Constraint for Every {
    fn mask(&mut self) -> Option<&Mask> {
        self.mask.clear();
        (0..512).filter(|&t| Every::allows(self.place, t)).for_each(|t| self.mask.allow(t));
        // Now and then everything is allowed.
        (self.place % 5 != 4).then_some(&self.mask)
    }
    fn valid_prefix(&mut self, tokens: &[Token]) -> usize {
        let allowed = |&(i, t): &(usize, &Token)| (self.place + i) % 5 == 4 || Every::allows(self.place + i, *t);
        tokens.iter().enumerate().take_while(allowed).count()
    }
    fn accept(&mut self, token: Token) {
        assert_eq!(self.valid_prefix(&[token]), 1, "only allowed tokens are taken");
        self.place += 1;
    }
    fn forced(&mut self) -> Vec<Token> {
        // Wrong on purpose most of the time: a draft is only a draft.
        vec![((3 - self.place % 3) % 3) as Token]
    }
    fn ended(&self) -> bool {
        false
    }
    fn failure(&self) -> Option<&verbatim::Error> {
        None
    }
}

#[test]
fn sampled_and_constrained_tokens_are_those_of_plain_decoding_under_any_drafter() {
    const LEN: usize = 60;
    let case = Case::new(12);
    let sampling = Sampling {
        temperature: 1.1,
        top_p: 0.9,
        repetition_penalty: 1.2,
        presence_penalty: 0.3,
        logit_bias: vec![(3, 1.5), (7, f32::NEG_INFINITY)],
        seed: 5,
        ..Sampling::default()
    };
    for (sampled, constrained) in [(true, false), (false, true), (true, true)] {
        let start = |drafter: Option<Box<dyn Drafter>>, block: usize| {
            let mut s = sequence(&case.model, settings(case.prompt.len() + LEN, block), drafter, &case.prompt);
            if sampled {
                s.set_sampling(sampling.clone()).unwrap();
            }
            if constrained {
                s.set_constraint(Some(Box::new(Every::new())));
            }
            s
        };
        let mut slow = start(None, 0);
        let (output, _) = generate(&mut slow, LEN, |_| false);
        assert_ne!(output[..12], case.output[..12], "the choice is another one");
        let truth = [&case.prompt[..], &output].concat();
        for block in [1, 2, 5, 16] {
            let scripted = |plan| Box::new(Scripted::new(plan, truth.clone(), case.model.vocab())) as Box<dyn Drafter>;
            let drafters = plans().into_iter().map(scripted).chain([Box::new(Suffix::new()) as Box<dyn Drafter>]);
            for drafter in drafters {
                let what =
                    format!("{}, blocks of {block}, sampled {sampled}, constrained {constrained}", drafter.name());
                let mut fast = start(Some(drafter), block);
                let (out, finish) = generate(&mut fast, LEN, |_| false);
                assert_eq!((&out, finish), (&output, Some(Finish::Length)), "{what}");
                assert!(fast.snapshot() == slow.snapshot(), "{what}: state");
                sums(fast.metrics());
            }
        }
    }
}
