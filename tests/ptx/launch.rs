//! A launch: its blocks one after another, their warps from barrier to barrier.
//!
//! Owns: what is checked before a launch, arguments, blocks, the block's barriers. Refuses to know: instructions.

use kernels::{Arg, Grid};

use super::code::{Code, Parameter, shared_base};
use super::memory::{Memory, Region};
use super::reach::Reach;
use super::warp::{Fault, Place, Rest, Warp};

/// Bytes of shared memory of a block, on all cards.
const MOST_SHARED: u64 = 48 << 10;
const MOST_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// What runs launches: memory, and what is used again by the next.
pub struct Processor {
    pub memory: Memory,
    warps: Vec<Warp>,
    shared: Vec<Region>,
    /// The number of the next block.
    next: u32,
    /// What lanes have done.
    pub instructions: u64,
}

/// A launch that was checked.
struct Launch<'a> {
    code: &'a Code,
    place: Place,
    /// Values of parameters' slots.
    singles: Vec<(usize, u32)>,
    wides: Vec<(usize, u64)>,
    warps: usize,
}

impl Processor {
    pub fn new(memory: Memory) -> Processor {
        Processor { memory, warps: Vec::new(), shared: Vec::new(), next: 1, instructions: 0 }
    }

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// What is wrong with the launch, or the first fault.
    pub fn launch(&mut self, code: &Code, grid: Grid, args: &[Arg]) -> Result<(), String> {
        let launch = checked(code, grid, args)?;
        self.warps.resize_with(launch.warps.max(self.warps.len()), Warp::default);
        for (number, warp) in self.warps[..launch.warps].iter_mut().enumerate() {
            warp.load(number as u32, code, &launch.singles, &launch.wides);
        }
        let (first, [x, y, z]) = (self.next, grid.blocks);
        for block in 0..u64::from(x) * u64::from(y) * u64::from(z) {
            let (x, y) = (u64::from(x), u64::from(y));
            let block = [(block % x) as u32, (block / x % y) as u32, (block / x / y) as u32];
            self.block(&launch, grid.shared, block, first)?;
        }
        Ok(())
    }

    fn block(&mut self, launch: &Launch, shared: u32, block: [u32; 3], first: u32) -> Result<(), String> {
        let code = launch.code;
        self.shared.resize_with(code.shared.len().max(self.shared.len()), || Region::new(0, 0));
        for (i, variable) in code.shared.iter().enumerate() {
            let len = variable.len.unwrap_or(u64::from(shared));
            self.shared[i].reset(shared_base(i, variable.align), len as usize);
        }
        let warps = &mut self.warps[..launch.warps];
        let place = Place { block, ..launch.place };
        warps.iter_mut().for_each(|warp| warp.begin(code, place, &launch.singles, &launch.wides));
        let mut reach = Reach {
            code,
            memory: &mut self.memory,
            shared: &mut self.shared[..code.shared.len()],
            block: self.next,
            first,
            barriers: 0,
            instructions: 0,
        };
        self.next += 1;
        let told = |warp: u32, fault: &Fault| {
            let instruction = &code.instructions[fault.at];
            let (thread, what) = (warp * 32 + fault.lane, &fault.what);
            let (line, text) = (instruction.line, &instruction.text);
            format!("block {block:?}, thread {thread}, line {line}: {text}: {what}")
        };
        loop {
            let mut rests = Vec::with_capacity(warps.len());
            for warp in &mut *warps {
                rests.push(warp.run(&mut reach).map_err(|fault| told(warp.number, &fault))?);
            }
            if rests.iter().all(|rest| *rest == Rest::Ended) {
                break;
            }
            let apart = rests.iter().zip(0u32..).find(|(rest, _)| **rest != rests[0]);
            if let Some((rest, warp)) = apart {
                let at = rests.iter().find_map(|rest| if let Rest::Barrier(at) = rest { Some(*at) } else { None });
                let other =
                    if *rest == Rest::Ended || rests[0] == Rest::Ended { "has ended" } else { "waits at another" };
                let what = format!("a warp of the block {other}: warps 0 and {warp} differ");
                return Err(told(warp, &Fault { at: at.unwrap_or(0), lane: 0, what }));
            }
            warps.iter_mut().for_each(Warp::pass);
            reach.barriers += 1;
        }
        self.instructions += reach.instructions;
        Ok(())
    }
}

fn checked<'a>(code: &'a Code, grid: Grid, args: &[Arg]) -> Result<Launch<'a>, String> {
    let [width, height] = grid.threads;
    let threads = u64::from(width) * u64::from(height);
    if threads == 0 || threads > u64::from(code.threads.min(1024)) {
        return Err(format!("{:?} threads in a block; it may have 1 to {}", grid.threads, code.threads));
    }
    if grid.blocks.iter().zip(MOST_BLOCKS).any(|(&n, most)| n == 0 || n > most) {
        return Err(format!("{:?} blocks; there may be 1 to {MOST_BLOCKS:?}", grid.blocks));
    }
    let own: u64 = code.shared.iter().map(|variable| variable.len.unwrap_or(0)).sum();
    if own + u64::from(grid.shared) > MOST_SHARED {
        return Err(format!("{own} and {} bytes of shared memory; there are {MOST_SHARED}", grid.shared));
    }
    if args.len() != code.parameters.len() {
        return Err(format!("{} arguments for {} parameters", args.len(), code.parameters.len()));
    }
    let (mut singles, mut wides) = (Vec::new(), Vec::new());
    for (i, (arg, parameter)) in args.iter().zip(&code.parameters).enumerate() {
        match (*arg, *parameter) {
            (Arg::At(value), Parameter::Pointer(slot)) => wides.extend(slot.map(|slot| (slot, value))),
            (Arg::Int(value), Parameter::Word(slot)) => singles.extend(slot.map(|slot| (slot, value as u32))),
            (Arg::Float(value), Parameter::Float(slot)) => singles.extend(slot.map(|slot| (slot, value.to_bits()))),
            _ => return Err(format!("argument {i}, {arg:?}, is of another kind than the parameter")),
        }
    }
    let place = Place { threads: [width, height, 1], block: [0; 3], blocks: grid.blocks };
    Ok(Launch { code, place, singles, wides, warps: threads.div_ceil(32) as usize })
}
