//! Whom plain decoding is compared with.
//!
//! Owns: the list of drafters, block lengths and ends. Refuses to know: how runs are compared.

use draft::{Drafter, Plan, Scripted};

use super::plain::{Limits, Plain};
use crate::backend::Backend;
use crate::cli::drafters::Crew;
use crate::engine::Wanted;

/// Most tokens that any plan here lets a run go beyond the number asked for.
pub const REACH: usize = 17;

/// Who drafts.
#[derive(Clone)]
pub enum Who {
    /// A drafter that users can choose.
    Real(Box<Crew>),
    /// One that knows the plain output and uses it well or badly.
    Script(Plan),
}

impl Who {
    /// A new drafter for the continuation of `plain`.
    pub fn drafter(&self, plain: &Plain, vocab: usize) -> Option<Box<dyn Drafter>> {
        match self {
            Who::Real(crew) => crew.drafter(),
            Who::Script(plan) => {
                let truth = [&plain.prompt[..], &plain.tokens].concat();
                Some(Box::new(Scripted::new(plan.clone(), truth, vocab)))
            }
        }
    }

    /// The heads that it asks.
    pub fn wanted<B: Backend>(&self) -> Wanted<B> {
        match self {
            Who::Real(crew) => crew.wanted(),
            Who::Script(_) => Wanted::nothing(),
        }
    }
}

/// One run.
#[derive(Clone)]
pub struct Config {
    /// The line of the report that it counts for.
    pub group: String,
    /// Who drafts.
    pub who: Who,
    /// Most tokens drafted for one pass.
    pub block: usize,
    /// How far it goes.
    pub limits: Limits,
}

/// All runs for one prompt with the drafters of the model, `crews`, and scripted ones. `limits` are those of an ordinary
/// run, `context` the longest context allowed.
pub fn all(crews: &[Crew], plain: &Plain, limits: Limits, context: usize) -> Vec<Config> {
    let mut list = List { configs: Vec::new(), limits };
    for crew in crews {
        list.add(crew.name, &Who::Real(Box::new(crew.clone())), &[1, 2, 3, 5, 8, 16, 31]);
    }
    list.script("oracle", Plan::Oracle, &[1, 3, 8, 16, 31]);
    list.script("wrong", Plan::Wrong, &[2, 7]);
    list.script("empty", Plan::Empty, &[8]);
    for seed in 1..=2 {
        list.script("random", Plan::Random(seed), &[5, 16]);
    }
    list.script("every length", Plan::Steps(every_length()), &[9]);
    list.script("overrun", Plan::Overrun, &[4, 16]);
    let length = plain.expected(limits).0;
    list.limits.stop_at = Some(length.div_ceil(2).max(1));
    for crew in crews {
        list.add("stop in a block", &Who::Real(Box::new(crew.clone())), &[16]);
    }
    list.script("stop in a block", Plan::Oracle, &[3, 16]);
    list.limits.stop_at = None;
    context_ends(&mut list, plain.prompt.len(), length, context);
    list.configs
}

/// Runs of every drafter, and of scripted ones, beside a plain run whose tokens are chosen in another `manner`.
pub fn few(crews: &[Crew], manner: &str, limits: Limits) -> Vec<Config> {
    let mut list = List { configs: Vec::new(), limits };
    for crew in crews {
        list.add(&format!("{}, {manner}", crew.name), &Who::Real(Box::new(crew.clone())), &[3, 16]);
    }
    let scripts = [Plan::Oracle, Plan::Overrun, Plan::Random(3)];
    scripts.into_iter().for_each(|plan| list.script(&format!("scripted, {manner}"), plan, &[8]));
    list.configs
}

/// Runs whose context ends inside a block, at its edges, or just after the output.
fn context_ends(list: &mut List, prompt: usize, length: usize, context: usize) {
    let ends = |k: usize| [0, 1, 2, k - 1, k, k + 1];
    list.limits.tokens += REACH;
    for k in [4, 16] {
        for end in ends(k) {
            list.limits.context = (prompt + end).min(context);
            for plan in [Plan::Oracle, Plan::Overrun, Plan::Wrong] {
                list.script("context end", plan, &[k]);
            }
        }
    }
    for end in [0, 1, 3] {
        list.limits.context = (prompt + length + end).min(context);
        list.script("context end", Plan::Overrun, &[4]);
    }
}

/// Every number of drafted tokens up to 9 with every number of right ones, and a pause, in an order that mixes short and
/// long ones: a short output meets both.
fn every_length() -> Vec<(usize, usize)> {
    /// Has no factor in common with the number of steps.
    const STRIDE: usize = 23;
    let steps: Vec<(usize, usize)> =
        (0..=9usize).flat_map(|drafted| (0..=drafted).map(move |right| (drafted, right))).collect();
    (0..steps.len()).map(|i| steps[i * STRIDE % steps.len()]).collect()
}

/// Runs under way of being listed.
struct List {
    configs: Vec<Config>,
    limits: Limits,
}

impl List {
    fn add(&mut self, group: &str, who: &Who, blocks: &[usize]) {
        let limits = self.limits;
        self.configs.extend(blocks.iter().map(|&block| Config {
            group: group.to_owned(),
            who: who.clone(),
            block,
            limits,
        }));
    }

    fn script(&mut self, group: &str, plan: Plan, blocks: &[usize]) {
        self.add(group, &Who::Script(plan), blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_drafted_and_of_right_tokens_is_planned_once() {
        let steps = every_length();
        assert_eq!(steps.len(), 55);
        for drafted in 0..=9 {
            for right in 0..=drafted {
                assert_eq!(steps.iter().filter(|&&s| s == (drafted, right)).count(), 1, "{drafted} {right}");
            }
        }
    }
}
