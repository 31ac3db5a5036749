//! A pass on the dies: operations are written down on a tape, which runs when a result is wanted.
//!
//! Owns: where an operation's operands are, and that a sum waits for the norm that mostly follows it. Refuses to know: what a
//! kernel computes.

use std::cell::RefCell;
use std::ops::Range;

use kernels::{Address, Arg, Grid, Kernel};

use super::Cuda;
use super::die::{Die, Launch};
use super::moe::Mixed;
use super::rows::{Form, Rows};
use super::tape::Tape;

/// An open pass.
pub struct CudaPass<'p> {
    pub(super) cuda: &'p Cuda,
    tape: RefCell<Tape>,
    /// `x += y`, not written down yet: a norm that follows does it on the way.
    sum: RefCell<Option<Sum>>,
    /// Experts' outputs, not summed yet: the shared expert is added on the way.
    mixed: RefCell<Option<Mixed>>,
}

/// `x += y` on a die.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub die: usize,
    pub rows: usize,
    pub x: Span,
    pub y: Span,
}

/// Rows on a die: where the first begins, and how many elements each has.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub at: Address,
    pub width: usize,
}

impl Span {
    /// Where row `row` begins.
    pub fn row(self, row: usize) -> Arg {
        Arg::At(self.at + (4 * row * self.width) as Address)
    }
}

/// The address of row `row` of each part of an int8 form, nothing if the form is of zeros.
pub(super) fn form_args(form: Form, block: usize, width: usize, row: usize) -> [Arg; 3] {
    if form == Form::default() {
        return [Arg::At(0); 3];
    }
    let at = |base: Address, bytes: usize| Arg::At(base + (row * bytes) as Address);
    [at(form.q, width), at(form.d, 4 * width / block), at(form.sums, width / 8)]
}

/// A number as a kernel takes it.
pub(super) fn int(n: usize) -> Arg {
    assert!(n <= u32::MAX as usize, "sizes fit 32 bits");
    Arg::Int(n as u32 as i32)
}

/// A flag as a kernel takes it.
pub(super) fn flag(on: bool) -> Arg {
    Arg::Int(i32::from(on))
}

/// `x` by `y` by `z` blocks of `threads` threads.
pub(super) fn grid(blocks: [usize; 3], threads: usize, shared: usize) -> Grid {
    Grid { blocks: blocks.map(|n| n as u32), threads: [threads as u32, 1], shared: shared as u32 }
}

/// A kernel without variants.
pub(super) const fn kernel(file: &'static str, name: &'static str) -> Kernel {
    Kernel { file, variant: "", name }
}

impl<'p> CudaPass<'p> {
    /// Nothing written down yet.
    pub(super) fn new(cuda: &'p Cuda) -> CudaPass<'p> {
        CudaPass { cuda, tape: RefCell::new(Tape::default()), sum: RefCell::new(None), mixed: RefCell::new(None) }
    }

    /// A die of the pass.
    pub(super) fn die(&self, die: usize) -> &'p Die {
        &self.cuda.dies[die]
    }

    /// `x` on `die`, sums included that were put off.
    pub(super) fn read(&self, x: &Rows, die: usize) -> Span {
        self.settle();
        self.read_unsettled(x, die)
    }

    fn read_unsettled(&self, x: &Rows, die: usize) -> Span {
        self.mix_if(x);
        let die = self.die(die);
        let at = self.cuda.must(die.name(self.tape.borrow_mut().read(x, die)));
        Span { at, width: x.width() }
    }

    /// `x`, about to be written by `die`.
    pub(super) fn write(&self, x: &mut Rows, rows: usize, die: usize) -> Span {
        self.mix_if(x);
        let die = self.die(die);
        let at = self.cuda.must(die.name(x.write(rows, die, &mut self.tape.borrow_mut().held)));
        Span { at, width: x.width() }
    }

    /// The int8 forms that whoever writes `x` should make.
    pub(super) fn forms(&self, x: &Rows, die: usize) -> [Form; 2] {
        let die = self.die(die);
        self.cuda.must(die.name(x.forms(die, &mut self.tape.borrow_mut().held)))
    }

    /// Form `which` of `x` on `die`; makes it if nobody has yet.
    pub(super) fn form(&self, x: &Rows, which: usize, die: usize) -> Form {
        let span = self.read(x, die);
        let holder = self.die(die);
        let got = x.form(which, holder, &mut self.tape.borrow_mut().held);
        let (valid, form) = self.cuda.must(holder.name(got));
        if !valid {
            let mut forms = [Form::default(); 2];
            forms[which] = form;
            self.quantize(span, forms, x.len(), die);
        }
        form
    }

    /// Writes a command down.
    pub(super) fn push(
        &self,
        die: usize,
        rows: usize,
        command: impl Fn(&Die, Range<usize>) -> kernels::Result<()> + Send + Sync + 'static,
    ) {
        self.settle();
        self.tape.borrow_mut().push(self.die(die), rows, Box::new(command));
    }

    /// Rows from here on go together.
    pub(super) fn go_together(&self) {
        self.mix_now();
        self.settle();
        self.tape.borrow_mut().joint = true;
    }

    /// Puts the sum of experts' outputs off.
    pub(super) fn mix_later(&self, mixed: Mixed) {
        *self.mixed.borrow_mut() = Some(mixed);
    }

    /// Writes down the sum of experts' outputs that was put off.
    pub(super) fn mix_now(&self) {
        let mixed = self.mixed.borrow_mut().take();
        if let Some(mixed) = mixed {
            self.combine(mixed, None);
        }
    }

    /// The same, if it makes the rows that somebody is about to look at or to write.
    fn mix_if(&self, x: &Rows) {
        if self.mixed.borrow().is_some_and(|mixed| mixed.makes(x)) {
            self.mix_now();
        }
    }

    /// The experts' outputs that were to be summed in `out` on `die`: the caller does it.
    pub(super) fn take_mixed(&self, out: &Rows, die: usize) -> Option<Mixed> {
        let mixed = (*self.mixed.borrow()).filter(|mixed| mixed.die() == die && mixed.makes(out));
        if mixed.is_some() {
            self.mixed.borrow_mut().take();
        }
        mixed
    }

    /// Puts a sum off.
    pub(super) fn put_off(&self, sum: Sum) {
        self.settle();
        *self.sum.borrow_mut() = Some(sum);
    }

    /// The sum that was put off, if it makes `x` on `die`: the caller does it.
    pub(super) fn take_sum(&self, x: Span, die: usize) -> Option<Sum> {
        let sum = (*self.sum.borrow())?;
        if sum.die == die && sum.x.at == x.at {
            self.sum.borrow_mut().take();
            return Some(sum);
        }
        None
    }

    /// Writes down the sum that was put off.
    fn settle(&self) {
        let Some(Sum { die, rows, x, y }) = self.sum.borrow_mut().take() else {
            return;
        };
        let add = move |die: &Die, range: Range<usize>| {
            let count = range.len() * x.width;
            let args = [x.row(range.start), y.row(range.start), int(count)];
            let grid = grid([count.div_ceil(256), 1, 1], 256, 0);
            die.launch(Launch { stage: "residual", kernel: super::norm::ADD, grid, args: &args, bytes: 12 * count })
        };
        self.tape.borrow_mut().push(self.die(die), rows, Box::new(add));
    }

    /// Where `x` lies on `die`, for the norm that takes the sum with it.
    pub(super) fn read_for_norm(&self, x: &Rows, die: usize) -> Span {
        if !x.is_on(self.die(die)) {
            self.settle();
        }
        self.read_unsettled(x, die)
    }

    /// Runs what is written down; `awaited` if a result behind it is waited for.
    pub(super) fn run(&self, awaited: bool) {
        self.mix_now();
        self.settle();
        let tape = std::mem::take(&mut *self.tape.borrow_mut());
        self.tape.borrow_mut().joint = tape.joint;
        self.cuda.must(self.cuda.run(tape, awaited));
    }
}
