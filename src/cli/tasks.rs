//! The built-in prompts, by task.
//!
//! Owns: prompts that `check` and `bench` run when none are given. Refuses to know: how they are run.
