//! Compiles the kernels for this machine's processor.
fn main() {}
