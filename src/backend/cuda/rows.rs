//! Activations on the dies.
//!
//! Owns: where a pass's rows are valid: on which dies, or still on the host; their int8 forms. Refuses to know: what the rows
//! mean, and when they travel (`pass`).

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernels::{Address, Allocation};

use super::die::Die;
use crate::quant::Format;

/// Both activation block lengths; a form's index is its place here.
pub const BLOCKS: [usize; 2] = [32, 256];

/// The index of the int8 form that matrices of `format` multiply; none for float formats.
pub fn form_of(format: Format) -> Option<usize> {
    format.activation_block().map(|block| usize::from(block == BLOCKS[1]))
}

/// Addresses of an int8 form: integers, a scale per block, sums of 16 integers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Form {
    /// `[rows][width]` i8.
    pub q: Address,
    /// `[rows][width / block]` f32.
    pub d: Address,
    /// `[rows][width / 16]` i16.
    pub sums: Address,
}

/// Memory that a pass needs until it has run, whatever becomes of the rows meanwhile.
pub type Held = Vec<Arc<Allocation>>;

/// Int8 forms that somebody asked for.
#[derive(Debug, Default)]
pub struct Wanted([AtomicBool; 2]);

/// `[rows][width]` f32 of a pass.
pub struct Rows {
    width: usize,
    len: usize,
    /// Rows travel to a die, and get forms there, when somebody reads them.
    homes: RefCell<Vec<Home>>,
    /// The values, where they came from the host and may not be on a die yet.
    host: Option<Arc<Vec<f32>>>,
    /// The die that wrote last.
    last: usize,
    /// Forms that were ever asked of rows made like these: whoever writes them makes those on the way.
    wanted: Arc<Wanted>,
}

/// The rows on one die.
#[derive(Default)]
struct Home {
    capacity: usize,
    valid: bool,
    data: Option<Arc<Allocation>>,
    forms: [Option<FormHome>; 2],
}

struct FormHome {
    capacity: usize,
    valid: bool,
    memory: [Arc<Allocation>; 3],
}

impl Rows {
    /// No rows yet.
    pub fn new(width: usize, dies: usize) -> Rows {
        assert!(width > 0, "rows have a width");
        Rows {
            width,
            len: 0,
            homes: RefCell::new((0..dies).map(|_| Home::default()).collect()),
            host: None,
            last: 0,
            wanted: Arc::default(),
        }
    }

    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of the current pass.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The die that wrote them last.
    pub fn last(&self) -> usize {
        self.last
    }

    /// Whether they are valid on `die`.
    pub fn is_on(&self, die: &Die) -> bool {
        self.homes.borrow()[die.index()].valid
    }

    /// The values, if they came from the host.
    pub fn host(&self) -> Option<Arc<Vec<f32>>> {
        self.host.clone()
    }

    /// Takes values from the host; they go to a die when one reads them.
    pub fn load(&mut self, values: Vec<f32>) {
        assert!(values.len().is_multiple_of(self.width), "whole rows are loaded");
        self.len = values.len() / self.width;
        self.forget();
        self.host = Some(Arc::new(values));
    }

    fn forget(&mut self) {
        self.host = None;
        for home in self.homes.get_mut() {
            home.valid = false;
            home.forms.iter_mut().flatten().for_each(|form| form.valid = false);
        }
    }

    /// Room on `die` for as many rows as there are now. `held` keeps what the pass needs until it has run.
    ///
    /// # Errors
    /// If the die's memory does not suffice.
    pub fn place(&self, die: &Die, held: &mut Held) -> kernels::Result<Address> {
        let mut homes = self.homes.borrow_mut();
        let home = &mut homes[die.index()];
        let data = match home.data.take().filter(|_| home.capacity >= self.len()) {
            Some(data) => data,
            None => {
                home.capacity = self.len().next_power_of_two();
                Arc::new(die.driver().allocate(4 * home.capacity * self.width)?)
            }
        };
        held.push(data.clone());
        Ok(home.data.insert(data).at)
    }

    /// Notes that the rows, `len` of them now, are what `die` is about to write and nowhere else.
    ///
    /// # Errors
    /// If the die's memory does not suffice.
    pub fn write(&mut self, len: usize, die: &Die, held: &mut Held) -> kernels::Result<Address> {
        self.len = len;
        let at = self.place(die, held)?;
        self.forget();
        self.arrive(die);
        self.last = die.index();
        Ok(at)
    }

    /// Where they lie on die `die`, if they ever did.
    pub fn at(&self, die: usize) -> Option<Address> {
        Some(self.homes.borrow()[die].data.as_ref()?.at)
    }

    /// A die that holds them, and where.
    pub fn home(&self) -> (usize, Address) {
        let homes = self.homes.borrow();
        let found = homes.iter().enumerate().filter(|(_, home)| home.valid);
        match found.filter_map(|(i, home)| Some((i, home.data.as_ref()?.at))).next() {
            Some(home) => home,
            None => unreachable!("rows are valid somewhere"),
        }
    }

    /// Notes that the rows are valid on `die` too.
    pub fn arrive(&self, die: &Die) {
        self.homes.borrow_mut()[die.index()].valid = true;
    }

    /// Notes who writes them: the same one will be asked for the same forms again.
    pub fn made_by(&mut self, wanted: &Arc<Wanted>) {
        self.wanted = wanted.clone();
    }

    /// The forms that whoever writes these rows should make on the way: room for each on `die`, noted as valid. Those that
    /// nobody wants are of zeros.
    ///
    /// # Errors
    /// If the die's memory does not suffice.
    pub fn forms(&self, die: &Die, held: &mut Held) -> kernels::Result<[Form; 2]> {
        let mut forms = [Form::default(); 2];
        for (which, form) in forms.iter_mut().enumerate() {
            if self.wanted.0[which].load(Ordering::Relaxed) {
                *form = self.form(which, die, held)?.1;
            }
        }
        Ok(forms)
    }

    /// Form `which` on `die`, noted as valid from here on; and whether it was before.
    ///
    /// # Errors
    /// If the die's memory does not suffice.
    pub fn form(&self, which: usize, die: &Die, held: &mut Held) -> kernels::Result<(bool, Form)> {
        let (width, len) = (self.width, self.len());
        assert!(width.is_multiple_of(BLOCKS[which]), "rows of {width} fall into blocks of {}", BLOCKS[which]);
        self.wanted.0[which].store(true, Ordering::Relaxed);
        let mut homes = self.homes.borrow_mut();
        let slot = &mut homes[die.index()].forms[which];
        if slot.as_ref().is_none_or(|form| form.capacity < len) {
            let capacity = len.next_power_of_two();
            let room = |bytes: usize| die.driver().allocate(capacity * bytes);
            let memory = [room(width)?, room(4 * width / BLOCKS[which])?, room(width / 8)?].map(Arc::new);
            *slot = Some(FormHome { capacity, valid: false, memory });
        }
        let Some(form) = slot else { unreachable!("just made") };
        held.extend(form.memory.iter().cloned());
        let valid = std::mem::replace(&mut form.valid, true);
        let [q, d, sums] = form.memory.each_ref().map(|part| part.at);
        Ok((valid, Form { q, d, sums }))
    }

    /// Row `row` of the last pass, appended to `out`.
    ///
    /// # Errors
    /// If the device failed.
    pub fn read(&self, dies: &[Die], row: usize, out: &mut Vec<f32>) -> crate::Result<()> {
        assert!(row < self.len(), "a row of the pass");
        if let Some(host) = &self.host {
            out.extend_from_slice(&host[row * self.width..][..self.width]);
            return Ok(());
        }
        let (die, data) = self.home();
        let die = &dies[die];
        let from = out.len();
        out.resize(from + self.width, 0.0);
        let at = data + (4 * row * self.width) as Address;
        die.name(die.driver().download(at, bytemuck::cast_slice_mut(&mut out[from..])))
    }
}
