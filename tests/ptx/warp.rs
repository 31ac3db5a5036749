//! 32 lanes and their registers.
//!
//! Owns: which lanes go on together and where they meet, what instructions do to registers. Refuses to know: other warps, what memory
//! is made of (reach).
//!
//! Of the lanes that can go on, those at the lowest instruction go first, so that lanes that parted meet again soon. Where lanes must
//! meet, each waits until none can go on. A register knows of each lane whether its value is made of memory that nobody wrote:
//! such a value may be computed with and stored, but it decides nothing and addresses nothing.

use super::code::{Code, Instruction, Lanes, Op, Special, Wide};
use super::reach::Reach;

/// What went wrong, at which instruction, in which lane.
#[derive(Debug)]
pub struct Fault {
    pub at: usize,
    pub lane: u32,
    pub what: String,
}

/// Why a warp does not go on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rest {
    /// All its threads wait at this instruction for those of the block.
    Barrier(usize),
    /// All its threads have ended.
    Ended,
}

/// A warp of a block.
#[derive(Default)]
pub struct Warp {
    pub number: u32,
    pub(super) s: Vec<Lanes>,
    pub(super) w: Vec<Wide>,
    pub(super) p: Vec<u32>,
    /// By file and slot, the lanes whose value is not known.
    pub(super) unknown: [Vec<u32>; 3],
    at: [usize; 32],
    /// Lanes that have not ended.
    live: u32,
    /// Lanes that wait where lanes meet.
    waiting: u32,
    /// Barriers of the warp so far.
    pub(super) barriers: u32,
}

/// A block's place, as its special registers say it.
#[derive(Clone, Copy, Default)]
pub struct Place {
    pub threads: [u32; 3],
    pub block: [u32; 3],
    pub blocks: [u32; 3],
}

pub fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

impl Warp {
    /// Makes room for a kernel, whose arguments stand in `singles` and `wides`.
    pub fn load(&mut self, number: u32, code: &Code, singles: &[(usize, u32)], wides: &[(usize, u64)]) {
        let [s, w, p] = code.slots;
        self.number = number;
        self.s.resize(s.max(self.s.len()), [0; 32]);
        self.w.resize(w.max(self.w.len()), [0; 32]);
        self.p.resize(p.max(self.p.len()), 0);
        code.singles.iter().chain(singles).for_each(|&(slot, value)| self.s[slot] = [value; 32]);
        code.wides.iter().chain(wides).for_each(|&(slot, value)| self.w[slot] = [value; 32]);
        code.always.iter().for_each(|&slot| self.p[slot] = u32::MAX);
        code.never.iter().for_each(|&slot| self.p[slot] = 0);
        for (unknown, slots) in self.unknown.iter_mut().zip(code.slots) {
            unknown.clear();
            unknown.resize(slots, u32::MAX);
        }
    }

    /// At the beginning of a kernel in a block.
    pub fn begin(&mut self, code: &Code, place: Place, singles: &[(usize, u32)], wides: &[(usize, u64)]) {
        self.unknown.iter_mut().for_each(|unknown| unknown.fill(u32::MAX));
        code.singles.iter().chain(singles).for_each(|&(slot, _)| self.unknown[0][slot] = 0);
        code.wides.iter().chain(wides).for_each(|&(slot, _)| self.unknown[1][slot] = 0);
        code.always.iter().chain(&code.never).for_each(|&slot| self.unknown[2][slot] = 0);
        let [width, height, _] = place.threads;
        let first = self.number * 32;
        for &(slot, special) in &code.specials {
            self.unknown[0][slot] = 0;
            self.s[slot] = std::array::from_fn(|lane| {
                let thread = first + lane as u32;
                match special {
                    Special::Thread(0) => thread % width,
                    Special::Thread(1) => thread / width,
                    Special::Thread(_) => 0,
                    Special::Threads(axis) => place.threads[axis],
                    Special::Block(axis) => place.block[axis],
                    Special::Blocks(axis) => place.blocks[axis],
                }
            });
        }
        self.at = [0; 32];
        let there = (width * height).saturating_sub(first).min(32);
        self.live = if there == 32 { u32::MAX } else { (1 << there) - 1 };
        (self.waiting, self.barriers) = (0, 0);
    }

    /// Lets the lanes go on until all wait for the block or have ended.
    ///
    /// # Errors
    /// The first fault.
    pub fn run(&mut self, reach: &mut Reach) -> Result<Rest, Fault> {
        while self.live != 0 {
            let ready = self.live & !self.waiting;
            if ready != 0 {
                self.advance(ready, reach)?;
            } else if let Some(rest) = self.meet(reach.code)? {
                return Ok(rest);
            }
        }
        Ok(Rest::Ended)
    }

    /// Past the block's barrier.
    pub fn pass(&mut self) {
        lanes(self.live).for_each(|lane| self.at[lane] += 1);
        self.waiting = 0;
        self.barriers += 1;
    }

    /// Of the lanes that can go on, lets those go that are furthest behind.
    fn advance(&mut self, ready: u32, reach: &mut Reach) -> Result<(), Fault> {
        let mut at = lanes(ready).map(|lane| self.at[lane]).min().unwrap_or(0);
        let together = lanes(ready).filter(|&lane| self.at[lane] == at).fold(0, |mask, lane| mask | 1 << lane);
        // Where the next of the others stands.
        let limit = lanes(ready & !together).map(|lane| self.at[lane]).min().unwrap_or(usize::MAX);
        let code = reach.code;
        while at < limit {
            let instruction = &code.instructions[at];
            reach.instructions += u64::from(together.count_ones());
            let mask = match instruction.guard {
                None => together,
                Some((slot, negated)) => {
                    self.decides(2, slot, together, at)?;
                    together & if negated { !self.p[slot] } else { self.p[slot] }
                }
            };
            match instruction.op {
                Op::Branch(_) if mask == 0 => at += 1,
                Op::Branch(to) if mask == together => at = to,
                Op::Branch(to) => {
                    lanes(together).for_each(|lane| self.at[lane] = if mask >> lane & 1 == 1 { to } else { at + 1 });
                    return Ok(());
                }
                Op::Return => {
                    self.live &= !mask;
                    lanes(together & !mask).for_each(|lane| self.at[lane] = at + 1);
                    return Ok(());
                }
                Op::Barrier | Op::WarpBarrier | Op::ShuffleXor(..) | Op::Mma(..) => {
                    let lane = mask.trailing_zeros().min(31);
                    if mask != together {
                        return Err(Fault { at, lane, what: "lanes meet under a condition".into() });
                    }
                    lanes(together).for_each(|lane| self.at[lane] = at);
                    self.waiting |= together;
                    return Ok(());
                }
                _ => {
                    self.execute(instruction, mask, at, reach)?;
                    at += 1;
                }
            }
        }
        lanes(together).for_each(|lane| self.at[lane] = at);
        Ok(())
    }

    /// All lanes wait: lets those go on that are complete.
    fn meet(&mut self, code: &Code) -> Result<Option<Rest>, Fault> {
        let mut rest = self.live;
        let mut first = None;
        while rest != 0 {
            let at = self.at[rest.trailing_zeros() as usize];
            let here = lanes(rest).filter(|&lane| self.at[lane] == at).fold(0, |mask, lane| mask | 1 << lane);
            rest &= !here;
            let instruction = &code.instructions[at];
            if instruction_meets_block(instruction) {
                if here == self.live {
                    return Ok(Some(Rest::Barrier(at)));
                }
            } else if here == self.members(instruction, here, at)? {
                self.exchange(instruction, here, at)?;
                lanes(here).for_each(|lane| self.at[lane] = at + 1);
                self.waiting &= !here;
                return Ok(None);
            }
            first.get_or_insert((at, here));
        }
        let (at, here) = first.unwrap_or_default();
        let elsewhere = lanes(self.live & !here).map(|lane| code.instructions[self.at[lane]].line).next();
        let elsewhere = elsewhere.map_or("have ended".into(), |line| format!("wait elsewhere, at line {line}"));
        let what = format!("lanes {here:#010x} wait here for others, which {elsewhere}");
        Err(Fault { at, lane: here.trailing_zeros(), what })
    }

    /// The lanes that an instruction wants to have together.
    fn members(&self, instruction: &Instruction, here: u32, at: usize) -> Result<u32, Fault> {
        let slot = match instruction.op {
            Op::WarpBarrier => instruction.abc[0],
            Op::ShuffleXor(_, mask) => mask,
            _ => return Ok(u32::MAX),
        };
        self.decides(0, slot, here, at)?;
        let lane = here.trailing_zeros();
        let members = self.s[slot][lane as usize];
        if lanes(here).any(|lane| self.s[slot][lane] != members) {
            return Err(Fault { at, lane, what: "lanes that meet say different masks".into() });
        }
        Ok(members)
    }

    /// What lanes do together.
    fn exchange(&mut self, instruction: &Instruction, here: u32, at: usize) -> Result<(), Fault> {
        let [a, b, c] = instruction.abc;
        match instruction.op {
            Op::WarpBarrier => {
                if here != self.live {
                    let what = "a barrier of a part of the warp, of which the record of races knows nothing".into();
                    return Err(Fault { at, lane: here.trailing_zeros(), what });
                }
                self.barriers += 1;
            }
            Op::ShuffleXor(p, _) => {
                self.decides(0, b, here, at)?;
                self.decides(0, c, here, at)?;
                let (values, unknown) = (self.s[a], self.unknown[0][a]);
                let (mut result, mut inside, mut result_unknown) = ([0; 32], 0, 0);
                for lane in lanes(here) {
                    let (clamp, segment) = (self.s[c][lane] & 31, self.s[c][lane] >> 8 & 31);
                    let last = lane as u32 & segment | clamp & !segment;
                    let from = lane as u32 ^ self.s[b][lane] & 31;
                    let from = if from <= last { from as usize } else { lane };
                    inside |= u32::from(lane as u32 ^ self.s[b][lane] & 31 <= last) << lane;
                    if here >> from & 1 == 0 {
                        let what = format!("reads lane {from}, which does not take part");
                        return Err(Fault { at, lane: lane as u32, what });
                    }
                    result[lane] = values[from];
                    result_unknown |= (unknown >> from & 1) << lane;
                }
                self.put(instruction.d, here, &result, result_unknown);
                self.put_mask(p, here, inside, 0);
            }
            Op::Mma(d, a, b, c) => self.multiply(d, a, b, c),
            _ => unreachable!("lanes do not meet here"),
        }
        Ok(())
    }

    /// D = A B + C of 16 x 32 by 32 x 8 signed bytes, the elements where the instruction set's tables have them: with g = lane / 4 and
    /// t = lane % 4, byte i of register r of A is row g + 8 (r % 2), column 4t + i + 16 (r / 2); of B it is row 4t + i + 16 r, column g;
    /// register r of C and D is row g + 8 (r / 2), column 2t + r % 2.
    fn multiply(&mut self, d: [usize; 4], a: [usize; 4], b: [usize; 2], c: [usize; 4]) {
        let byte = |word: u32, i: usize| i32::from((word >> (8 * i)) as i8);
        let (mut left, mut right) = ([[0i32; 32]; 16], [[0i32; 8]; 32]);
        let mut unknown = 0;
        for (lane, i) in (0..32).flat_map(|lane| (0..4).map(move |i| (lane, i))) {
            let (g, t) = (lane / 4, lane % 4);
            for (r, slot) in a.iter().enumerate() {
                left[g + 8 * (r % 2)][4 * t + i + 16 * (r / 2)] = byte(self.s[*slot][lane], i);
            }
            for (r, slot) in b.iter().enumerate() {
                right[4 * t + i + 16 * r][g] = byte(self.s[*slot][lane], i);
            }
        }
        a.iter().chain(&b).chain(&c).for_each(|slot| unknown |= self.unknown[0][*slot]);
        let results: [Lanes; 4] = std::array::from_fn(|r| {
            std::array::from_fn(|lane| {
                let (row, column) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
                let sum = (0..32).map(|k| left[row][k] * right[k][column]).sum::<i32>();
                self.s[c[r]][lane].wrapping_add(sum as u32)
            })
        });
        // One that is not known could be in every sum.
        let unknown = if unknown == 0 { 0 } else { u32::MAX };
        d.iter().zip(&results).for_each(|(slot, result)| self.put(*slot, u32::MAX, result, unknown));
    }

    /// # Errors
    /// If a register that decides something is made of memory that nobody wrote.
    pub(super) fn decides(&self, file: usize, slot: usize, mask: u32, at: usize) -> Result<(), Fault> {
        match self.unknown[file][slot] & mask {
            0 => Ok(()),
            unknown => {
                let what = "depends on memory or a register that nobody wrote".into();
                Err(Fault { at, lane: unknown.trailing_zeros(), what })
            }
        }
    }

    pub(super) fn put(&mut self, slot: usize, mask: u32, value: &Lanes, unknown: u32) {
        let to = &mut self.s[slot];
        if mask == u32::MAX {
            *to = *value;
        } else {
            lanes(mask).for_each(|lane| to[lane] = value[lane]);
        }
        let old = &mut self.unknown[0][slot];
        *old = *old & !mask | unknown & mask;
    }

    pub(super) fn put_wide(&mut self, slot: usize, mask: u32, value: &Wide, unknown: u32) {
        let to = &mut self.w[slot];
        if mask == u32::MAX {
            *to = *value;
        } else {
            lanes(mask).for_each(|lane| to[lane] = value[lane]);
        }
        let old = &mut self.unknown[1][slot];
        *old = *old & !mask | unknown & mask;
    }

    pub(super) fn put_mask(&mut self, slot: usize, mask: u32, value: u32, unknown: u32) {
        self.p[slot] = self.p[slot] & !mask | value & mask;
        let old = &mut self.unknown[2][slot];
        *old = *old & !mask | unknown & mask;
    }
}

fn instruction_meets_block(instruction: &Instruction) -> bool {
    matches!(instruction.op, Op::Barrier)
}
