//! Generation: propose, verify, accept, keep, observe.
//!
//! Owns: sequences, acceptance, metrics, session files. Refuses to know: tensors and text; it sees tokens and logits rows.

mod accept;
mod assistant;
mod choice;
mod heads;
mod metrics;
mod sample;
mod sequence;
mod session;

pub use accept::{Accepted, Finish, accept};
pub use heads::Wanted;
pub use metrics::{BANDS, Metrics, Pass, Share, Times, band};
pub use sample::{Logprobs, PENALTY_WINDOW, Sampler, Sampling, logprobs};
pub use sequence::{DEFAULT_BLOCK, Ends, PREFILL, Sequence, Settings, Step, Unwatched, Watch};
