//! The prompts of a check.
//!
//! Owns: where they come from. Refuses to know: what is done with them.

use std::path::Path;

use draft::Token;
use serde::Deserialize;

use crate::Result;
use crate::cli::setup::{self, About};
use crate::cli::tasks;

/// Built-in prompts of each task: as many as show every kind of text without making the user wait.
const EACH: usize = 2;

/// A prompt as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// What kind of work it is.
    pub task: String,
    /// Its tokens.
    pub ids: Vec<Token>,
}

/// A line of a prompt file: text for the chat template, or token ids as they are.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Ids { prompt_ids: Vec<Token>, task: Option<String> },
    Text { prompt: String, task: Option<String> },
}

/// The prompts of a file, or some of each built-in task.
///
/// # Errors
/// If the file cannot be read or a line is not a prompt, or the chat template refuses one.
pub fn load(path: Option<&Path>, about: &About) -> Result<Vec<Prompt>> {
    match path {
        Some(path) => tasks::lines(path, "a \"prompt\" string or \"prompt_ids\", and perhaps a \"task\" string")?
            .into_iter()
            .map(|line| match line {
                Line::Ids { prompt_ids: ids, task } => Ok(Prompt { task: tasks::task(task), ids }),
                Line::Text { prompt, task } => {
                    Ok(Prompt { task: tasks::task(task), ids: setup::chat_prompt(about, &prompt)? })
                }
            })
            .collect(),
        None => builtin(about),
    }
}

fn builtin(about: &About) -> Result<Vec<Prompt>> {
    let mut prompts: Vec<Prompt> = Vec::new();
    for prompt in tasks::builtin() {
        if prompts.iter().filter(|p| p.task == prompt.task).count() < EACH {
            let ids = setup::chat_prompt(about, &prompt.text)?;
            prompts.push(Prompt { task: prompt.task, ids });
        }
    }
    Ok(prompts)
}
