//! What a warp reaches besides its registers, and the instructions that lanes do each for themselves.
//!
//! Owns: the checks of an address: alignment, bounds, races. Refuses to know: how lanes come together (warp).

use super::arithmetic::insert;
use super::code::{Access, Code, Instruction, Op, SHARED_WINDOW, Slot, Space};
use super::memory::{Memory, Region, locate_shared};
use super::races::{Race, Stamp, Touch};
use super::warp::{Fault, Warp, lanes};

/// The surroundings of a warp.
pub struct Reach<'a> {
    pub code: &'a Code,
    pub memory: &'a mut Memory,
    pub shared: &'a mut [Region],
    /// The block's number, of which no other block of any launch has the same.
    pub block: u32,
    /// The number of the launch's first block.
    pub first: u32,
    /// The block's barriers so far.
    pub barriers: u32,
    /// Counts what lanes have done.
    pub instructions: u64,
}

impl Reach<'_> {
    /// Where an access goes, after all checks.
    fn to(
        &mut self,
        space: Space,
        address: u64,
        len: usize,
        touch: Touch,
        now: Stamp,
    ) -> Result<(&mut Region, usize), String> {
        let (code, first) = (self.code, self.first);
        let is_shared = space == Space::Shared || space == Space::Generic && address >= SHARED_WINDOW;
        let found = match space {
            _ if !is_shared => self.memory.locate(address, len),
            Space::Shared => locate_shared(self.shared, address, len),
            _ => locate_shared(self.shared, address - SHARED_WINDOW, len),
        };
        // Shared memory is another one for every block.
        let first = if is_shared { now.block } else { first };
        let kind = if is_shared { "variable of shared memory" } else { "allocation" };
        let Some((region, offset)) = found else {
            return Err(format!("{len} bytes at {address:#x} are in no {kind}"));
        };
        if !address.is_multiple_of(len as u64) || !offset.is_multiple_of(len) {
            return Err(format!("{len} bytes at {address:#x}, byte {offset} of its {kind}, are not aligned"));
        }
        match region.shadow.touch(offset, len, touch, now, first) {
            Ok(()) => Ok((region, offset)),
            Err(race) => Err(told(code, &race, touch, now, offset, kind)),
        }
    }
}

/// A race in words.
fn told(code: &Code, race: &Race, touch: Touch, now: Stamp, offset: usize, kind: &str) -> String {
    let Race { other, touch: before } = race;
    let instruction = &code.instructions[other.at as usize];
    let whose = match other.block == now.block {
        true => "of the block".to_owned(),
        false => format!("of the block {} before", now.block.wrapping_sub(other.block)),
    };
    let (thread, line, text) = (other.thread, instruction.line, &instruction.text);
    format!(
        "race: {touch:?} of byte {offset} of its {kind} after {before:?} by thread {thread} {whose}, line {line}: {text}"
    )
}

impl Warp {
    /// Runs an instruction that every lane of the mask does for itself.
    pub(super) fn execute(&mut self, i: &Instruction, mask: u32, at: usize, reach: &mut Reach) -> Result<(), Fault> {
        let [a, b, c] = i.abc;
        let (s, w, p) = (&self.s, &self.w, &self.p);
        let [us, uw, up] = &self.unknown;
        match i.op {
            Op::S(f) => self.put(i.d, mask, &f(&s[a]), us[a]),
            Op::Ss(f) => self.put(i.d, mask, &f(&s[a], &s[b]), us[a] | us[b]),
            Op::Sss(f) => self.put(i.d, mask, &f(&s[a], &s[b], &s[c]), us[a] | us[b] | us[c]),
            Op::Insert(from, len) => {
                let value = std::array::from_fn(|lane| insert(s[a][lane], s[b][lane], from, len));
                self.put(i.d, mask, &value, us[a] | us[b]);
            }
            Op::WToS(f) => self.put(i.d, mask, &f(&w[a]), uw[a]),
            Op::SToW(f) => self.put_wide(i.d, mask, &f(&s[a]), us[a]),
            Op::SsToW(f) => self.put_wide(i.d, mask, &f(&s[a], &s[b]), us[a] | us[b]),
            Op::W(f) => self.put_wide(i.d, mask, &f(&w[a]), uw[a]),
            Op::Ww(f) => self.put_wide(i.d, mask, &f(&w[a], &w[b]), uw[a] | uw[b]),
            Op::WsToW(f) => self.put_wide(i.d, mask, &f(&w[a], &s[b]), uw[a] | us[b]),
            Op::SsToP(f) => self.put_mask(i.d, mask, f(&s[a], &s[b]), us[a] | us[b]),
            Op::WwToP(f) => self.put_mask(i.d, mask, f(&w[a], &w[b]), uw[a] | uw[b]),
            Op::P(f) => self.put_mask(i.d, mask, f(p[a], p[b]), up[a] | up[b]),
            Op::SelectS => {
                let (x, y) = (&s[a], &s[b]);
                let value = std::array::from_fn(|lane| if p[c] >> lane & 1 == 1 { x[lane] } else { y[lane] });
                self.put(i.d, mask, &value, up[c] | us[a] & p[c] | us[b] & !p[c]);
            }
            Op::SelectW => {
                let (x, y) = (&w[a], &w[b]);
                let value = std::array::from_fn(|lane| if p[c] >> lane & 1 == 1 { x[lane] } else { y[lane] });
                self.put_wide(i.d, mask, &value, up[c] | uw[a] & p[c] | uw[b] & !p[c]);
            }
            Op::Load(access) => return self.load_memory(&access, a, mask, at, reach),
            Op::Store(access) => return self.store_memory(&access, a, mask, at, reach),
            Op::AtomicMax(offset) => return self.atomic_max(i, offset, mask, at, reach),
            _ => unreachable!("lanes meet or jump here"),
        }
        Ok(())
    }

    fn stamp(&self, lane: usize, at: usize, reach: &Reach) -> Stamp {
        Stamp {
            block: reach.block,
            barriers: reach.barriers,
            warp_barriers: self.barriers,
            thread: self.number * 32 + lane as u32,
            at: at as u32,
        }
    }

    fn load_memory(&mut self, x: &Access, base: usize, mask: u32, at: usize, reach: &mut Reach) -> Result<(), Fault> {
        self.decides(1, base, mask, at)?;
        let (bytes, count) = (usize::from(x.bytes), usize::from(x.count));
        let touch = if x.constant { Touch::ReadConstant } else { Touch::Read };
        let addresses = self.w[base];
        let mut unknown = [0; 4];
        for lane in lanes(mask) {
            let (address, now) = (addresses[lane].wrapping_add_signed(x.offset), self.stamp(lane, at, reach));
            let found = reach.to(x.space, address, bytes * count, touch, now);
            let (region, offset) = found.map_err(|what| Fault { at, lane: lane as u32, what })?;
            for (e, slot) in x.slots[..count].iter().enumerate() {
                let (value, is_known) = region.load(offset + e * bytes, bytes);
                unknown[e] |= u32::from(!is_known) << lane;
                match *slot {
                    Slot::S(slot) => self.s[slot][lane] = value as u32,
                    Slot::W(slot) => self.w[slot][lane] = value,
                }
            }
        }
        for (slot, unknown) in x.slots[..count].iter().zip(unknown) {
            let (file, slot) = file_of(*slot);
            let old = &mut self.unknown[file][slot];
            *old = *old & !mask | unknown;
        }
        Ok(())
    }

    fn store_memory(&mut self, x: &Access, base: usize, mask: u32, at: usize, reach: &mut Reach) -> Result<(), Fault> {
        self.decides(1, base, mask, at)?;
        let (bytes, count) = (usize::from(x.bytes), usize::from(x.count));
        for lane in lanes(mask) {
            let (address, now) = (self.w[base][lane].wrapping_add_signed(x.offset), self.stamp(lane, at, reach));
            let found = reach.to(x.space, address, bytes * count, Touch::Write, now);
            let (region, offset) = found.map_err(|what| Fault { at, lane: lane as u32, what })?;
            for (e, slot) in x.slots[..count].iter().enumerate() {
                let value = match *slot {
                    Slot::S(slot) => u64::from(self.s[slot][lane]),
                    Slot::W(slot) => self.w[slot][lane],
                };
                let (file, slot) = file_of(*slot);
                region.store(offset + e * bytes, bytes, value, self.unknown[file][slot] >> lane & 1 == 0);
            }
        }
        Ok(())
    }

    fn atomic_max(
        &mut self,
        i: &Instruction,
        offset: i64,
        mask: u32,
        at: usize,
        reach: &mut Reach,
    ) -> Result<(), Fault> {
        let [base, operand, _] = i.abc;
        self.decides(1, base, mask, at)?;
        self.decides(0, operand, mask, at)?;
        let mut old = [0; 32];
        for lane in lanes(mask) {
            let (address, now) = (self.w[base][lane].wrapping_add_signed(offset), self.stamp(lane, at, reach));
            let fault = |what: String| Fault { at, lane: lane as u32, what };
            let (region, at) = reach.to(Space::Global, address, 4, Touch::Atomic, now).map_err(fault)?;
            let (value, is_known) = region.load(at, 4);
            if !is_known {
                return Err(fault("changes memory that nobody wrote".into()));
            }
            old[lane] = value as u32;
            region.store(at, 4, value.max(u64::from(self.s[operand][lane])), true);
        }
        self.put(i.d, mask, &old, 0);
        Ok(())
    }
}

fn file_of(slot: Slot) -> (usize, usize) {
    match slot {
        Slot::S(slot) => (0, slot),
        Slot::W(slot) => (1, slot),
    }
}
