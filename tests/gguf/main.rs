//! The GGUF reader and writer: what is written comes back, what is damaged is refused in one clear sentence, and no
//! file makes the reader allocate more than its own size.

mod fixtures;
mod hostile;
mod measure;
mod pocket;
mod refusals;
mod roundtrip;
mod splits;
