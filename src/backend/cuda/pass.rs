//! A pass on the dies: operations are written down on a tape, which runs when a result is wanted.
//!
//! Owns: where an operation's operands are, and that sums wait for the norm that mostly follows them. Refuses to know: what a
//! kernel computes.

use std::cell::RefCell;
use std::ops::Range;

use kernels::{Address, Arg, Grid, Kernel};

use super::Cuda;
use super::die::{Die, Launch};
use super::moe::{Mixed, Shared};
use super::norm::Hidden;
use super::rows::{Form, Rows};
use super::tape::Tape;

/// An open pass.
pub struct CudaPass<'p> {
    pub(super) cuda: &'p Cuda,
    tape: RefCell<Tape>,
    /// `x += y`, not written down yet: a norm that follows does it on the way.
    sum: RefCell<Option<Sum>>,
    /// Experts' outputs, not summed yet: the shared expert is added on the way, and a norm that follows may do all of it.
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

impl Sum {
    /// Whether what is added is the experts' sum.
    fn waits_for(&self, mixed: &Mixed) -> bool {
        mixed.die == self.die && mixed.out.at == self.y.at
    }
}

/// Rows on a die: where the first begins, and how many elements each has.
#[derive(Clone, Copy, Default)]
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
        self.mix_before(die, x.len());
        let die = self.die(die);
        let at = self.cuda.must(die.name(self.tape.borrow_mut().read(x, die)));
        Span { at, width: x.width() }
    }

    /// `x`, about to be written by `die`.
    pub(super) fn write(&self, x: &mut Rows, rows: usize, die: usize) -> Span {
        self.mix_if(x);
        let die = self.die(die);
        let mut tape = self.tape.borrow_mut();
        let at = self.cuda.must(die.name(x.write(rows, die, &mut tape.held)));
        tape.after_readers(at, rows, die);
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
        self.mix_before(die, rows);
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
        if let Some(mixed) = self.take_mixed(|_| true) {
            // Not by `push`: another sum that was put off may be waiting for this one.
            let combine = move |die: &Die, range: Range<usize>| mixed.run(die, range);
            self.tape.borrow_mut().push(self.die(mixed.die), mixed.rows, Box::new(combine));
        }
    }

    /// The same, if it makes or reads the rows that somebody is about to look at or to write.
    pub(super) fn mix_if(&self, x: &Rows) {
        if self.mixed.borrow().is_some_and(|mixed| mixed.makes(x) || mixed.reads(x)) {
            self.mix_now();
        }
    }

    /// The same, if something for other rows or another die comes next: the experts' outputs do not outlast their stage.
    fn mix_before(&self, die: usize, rows: usize) {
        if self.mixed.borrow().is_some_and(|mixed| (mixed.die, mixed.rows) != (die, rows)) {
            self.mix_now();
        }
    }

    /// Where the experts' outputs will be summed, if that is put off and makes `x` on `die`.
    pub(super) fn mixed_in(&self, x: &Rows, die: usize) -> Option<Span> {
        (*self.mixed.borrow()).filter(|mixed| mixed.die == die && mixed.makes(x)).map(|mixed| mixed.out)
    }

    /// Adds a shared expert to the sum that was put off, if it makes `out` on `die`; whether it does.
    pub(super) fn mix_with(&self, out: &Rows, die: usize, shared: Shared) -> bool {
        let mut mixed = self.mixed.borrow_mut();
        let waits = mixed.as_mut().filter(|mixed| mixed.die == die && mixed.makes(out) && mixed.shared.is_none());
        waits.map(|mixed| mixed.shared = Some(shared)).is_some()
    }

    /// The sum of experts' outputs that was put off, if it is a certain one: the caller does it.
    fn take_mixed(&self, which: impl Fn(&Mixed) -> bool) -> Option<Mixed> {
        let mixed = self.mixed.borrow_mut().take_if(|mixed| which(mixed))?;
        if let Some(mixture) = mixed.inside {
            let leave = move |die: &Die, range: Range<usize>| mixture.leave(die, range, Hidden::default());
            self.tape.borrow_mut().push(self.die(mixed.die), mixed.rows, Box::new(leave));
        }
        Some(mixed)
    }

    /// Writes down that hidden rows of experts that are not through yet go on, and `hidden` with them; false if there are
    /// none on `die`.
    pub(super) fn leave_with(&self, die: usize, rows: usize, hidden: Hidden) -> bool {
        self.mix_before(die, rows);
        let inside = self.mixed.borrow_mut().as_mut().and_then(|mixed| mixed.inside.take());
        let Some(mixture) = inside else { return false };
        self.push(die, rows, move |die: &Die, range: Range<usize>| mixture.leave(die, range, hidden));
        true
    }

    /// Puts a sum off.
    pub(super) fn put_off(&self, sum: Sum) {
        self.settle();
        *self.sum.borrow_mut() = Some(sum);
    }

    /// The sum that was put off, if it makes `x` on `die`, and the experts' that it waits for: the caller does both.
    pub(super) fn take_sum(&self, x: Span, die: usize) -> Option<(Sum, Option<Mixed>)> {
        let sum = self.sum.borrow_mut().take_if(|sum| sum.die == die && sum.x.at == x.at)?;
        Some((sum, self.take_mixed(|mixed| sum.waits_for(mixed))))
    }

    /// Writes down the sum that was put off.
    fn settle(&self) {
        let Some(sum) = self.sum.borrow_mut().take() else {
            return;
        };
        if self.mixed.borrow().is_some_and(|mixed| sum.waits_for(&mixed)) {
            self.mix_now();
        }
        let Sum { die, rows, x, y } = sum;
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
