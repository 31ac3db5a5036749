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
pub struct Choice {
    sampler: Sampler,
    constraint: Option<Box<dyn Constraint>>,
    logits: Vec<f32>,
}

impl Choice {
    /// The best token, always.
    pub fn greedy() -> Choice {
        Choice { sampler: Sampler::new(Sampling::default()), constraint: None, logits: Vec::new() }
    }

    /// Sets how tokens are sampled.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn set_sampling(&mut self, sampling: Sampling) -> Result<()> {
        sampling.validate()?;
        self.sampler = Sampler::new(sampling);
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
        // The device has found the best one already; without sampling it is the choice wherever it is allowed.
        let token = if self.sampler.settings().is_plain() && allowed.is_none_or(|mask| mask.allows(best)) {
            best
        } else {
            self.logits.clear();
            model.logits(workspace, row, &mut self.logits);
            self.sampler.choose(&self.logits, history, allowed)
        };
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token);
        }
        token
    }
}
