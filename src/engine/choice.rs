//! How a sequence's tokens are chosen.
//!
//! Owns: the sampler and the constraint of a sequence. Refuses to know: what was drafted, and which rows are kept.
//!
//! A token is chosen from its row's logits and the tokens before it, whether the row was drafted or not; so the choice is
//! plain decoding's.

use draft::Token;

use super::sample::{Sampler, Sampling};
use crate::backend::Backend;
use crate::constraint::Constraint;
use crate::model::{Model, Workspace};
use crate::{Error, Result};

/// Chooses the best token, or as the sampler and the constraint say.
#[derive(Default)]
pub struct Choice {
    sampler: Option<Sampler>,
    constraint: Option<Box<dyn Constraint>>,
    logits: Vec<f32>,
}

impl Choice {
    /// Sets how tokens are sampled.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn set_sampling(&mut self, sampling: Sampling) -> Result<()> {
        sampling.validate()?;
        self.sampler = (!sampling.is_plain()).then(|| Sampler::new(sampling));
        Ok(())
    }

    /// Sets what constrains the tokens to come.
    pub fn set_constraint(&mut self, constraint: Option<Box<dyn Constraint>>) {
        self.constraint = constraint;
    }

    /// How many of the drafted `tokens` may come next at all.
    pub fn valid_prefix(&mut self, tokens: &[Token]) -> usize {
        self.constraint.as_mut().map_or(tokens.len(), |constraint| constraint.valid_prefix(tokens))
    }

    /// Tokens that must come next.
    pub fn forced(&mut self) -> Vec<Token> {
        self.constraint.as_mut().map(|constraint| constraint.forced()).unwrap_or_default()
    }

    /// What made the constraint give up.
    pub fn failure(&self) -> Option<&Error> {
        self.constraint.as_ref().and_then(|constraint| constraint.failure())
    }

    /// The token behind `history`, whose last token is row `row` of the last pass; `best` is that row's best token.
    pub fn token<B: Backend>(
        &mut self,
        (model, workspace): (&Model<B>, &Workspace<B>),
        row: usize,
        best: Token,
        history: &[Token],
    ) -> Token {
        let allowed = self.constraint.as_mut().and_then(|constraint| constraint.mask());
        let token = match (&mut self.sampler, allowed) {
            (None, None) => best,
            (None, Some(mask)) if mask.allows(best) => best,
            (sampler, allowed) => {
                self.logits.clear();
                model.logits(workspace, row, &mut self.logits);
                let sampler = sampler.get_or_insert_with(|| Sampler::new(Sampling::default()));
                sampler.choose(&self.logits, history, allowed)
            }
        };
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token);
        }
        token
    }
}
