//! The ways in which tokens are chosen that a check goes through: greedy, sampled, within a grammar, both.
//!
//! Owns: the settings of each. Refuses to know: what is compared.

use std::sync::Arc;

use crate::Result;
use crate::backend::Backend;
use crate::constraint::Constraint;
use crate::engine::{Sampling, Sequence};
use crate::text::{Grammar, Grammars, Tokenizer};

/// One way.
#[derive(Clone)]
pub struct Manner {
    /// What the report's lines are called by; empty for plain greedy choice.
    pub name: &'static str,
    sampling: Sampling,
    grammar: Option<Arc<Grammar>>,
}

impl Manner {
    /// The best token, always.
    pub fn greedy() -> Manner {
        Manner { name: "", sampling: Sampling::default(), grammar: None }
    }

    /// All others that the model's tokenizer, if it has one, allows for, for the `number`-th prompt.
    ///
    /// # Errors
    /// If the tokenizer cannot be used for grammars.
    pub fn others(tokenizer: Option<&Tokenizer>, number: usize) -> Result<Vec<Manner>> {
        let sampling = Sampling {
            temperature: 0.9,
            top_k: 40,
            top_p: 0.97,
            min_p: 0.01,
            repetition_penalty: 1.05,
            presence_penalty: 0.1,
            frequency_penalty: 0.05,
            seed: number as u64,
            ..Sampling::default()
        };
        let sampled = Manner { name: "sampled", sampling: sampling.clone(), grammar: None };
        let Some(tokenizer) = tokenizer else {
            return Ok(vec![sampled]);
        };
        let grammar = Grammars::new(tokenizer)?.json_schema(&serde_json::json!({
            "type": "array",
            "minItems": 2,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "who lives there"},
                    "city": {"type": "string"},
                    "age": {"type": "integer"},
                },
                "required": ["name", "city", "age"],
                "additionalProperties": false,
            },
        }))?;
        let grammar = Some(Arc::new(grammar));
        let constrained = Manner { name: "grammar", sampling: Sampling::default(), grammar: grammar.clone() };
        Ok(vec![sampled, constrained, Manner { name: "sampled, grammar", sampling, grammar }])
    }

    /// Makes `sequence`, whose prompt is set, choose in this way.
    ///
    /// # Errors
    /// Never for the manners of this file; settings are checked.
    pub fn apply<B: Backend>(&self, sequence: &mut Sequence<B>) -> Result<()> {
        sequence.set_sampling(self.sampling.clone())?;
        sequence
            .set_constraint(self.grammar.as_ref().map(|grammar| Box::new(grammar.start(None)) as Box<dyn Constraint>));
        Ok(())
    }
}
