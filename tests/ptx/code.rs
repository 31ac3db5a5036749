//! A kernel as the machine runs it.
//!
//! Owns: the kinds of instructions, where operands lie. Refuses to know: how they are written (text, decode) and what happens when
//! they run (warp).
//!
//! A warp's 32 lanes go through an instruction together. Registers are slots of three files, 32 lanes of 32 or 64 bits, or a mask for
//! predicates; immediates, special registers, parameters and addresses of variables are slots too, filled before the kernel begins.

/// A 32-bit register of 32 lanes; of 16-bit registers the upper half is 0.
pub type Lanes = [u32; 32];
/// A 64-bit register of 32 lanes.
pub type Wide = [u64; 32];

/// An instruction.
pub struct Instruction {
    pub op: Op,
    /// Slot of the result.
    pub d: usize,
    /// Slots of the operands.
    pub abc: [usize; 3],
    /// Slot of a predicate, and whether it must be false.
    pub guard: Option<(usize, bool)>,
    pub line: u32,
    pub text: String,
}

/// What an instruction does. The letters of the plain ones: files of the operands, then of the result; s single word, w wide, p
/// predicate.
#[derive(Clone, Copy)]
pub enum Op {
    S(fn(&Lanes) -> Lanes),
    Ss(fn(&Lanes, &Lanes) -> Lanes),
    Sss(fn(&Lanes, &Lanes, &Lanes) -> Lanes),
    /// Bit field insert: where the field begins and how long it is stands in the code.
    Insert(u32, u32),
    SToW(fn(&Lanes) -> Wide),
    SsToW(fn(&Lanes, &Lanes) -> Wide),
    WToS(fn(&Wide) -> Lanes),
    W(fn(&Wide) -> Wide),
    Ww(fn(&Wide, &Wide) -> Wide),
    WsToW(fn(&Wide, &Lanes) -> Wide),
    SsToP(fn(&Lanes, &Lanes) -> u32),
    WwToP(fn(&Wide, &Wide) -> u32),
    P(fn(u32, u32) -> u32),
    SelectS,
    SelectW,
    Load(Access),
    Store(Access),
    /// The larger of a 32-bit word in global memory and an operand.
    AtomicMax(i64),
    /// To an instruction.
    Branch(usize),
    Return,
    /// All threads of the block.
    Barrier,
    /// The lanes of a mask.
    WarpBarrier,
    /// From lane `lane ^ b`, with the control word c; slots of the predicate and of the mask.
    ShuffleXor(usize, usize),
    /// m16n8k32 over signed bytes: slots of D, A, B, C.
    Mma([usize; 4], [usize; 4], [usize; 2], [usize; 4]),
}

/// A load or store: of how many elements, how wide, from where to where.
#[derive(Clone, Copy)]
pub struct Access {
    pub space: Space,
    /// Bytes of an element.
    pub bytes: u8,
    /// Elements.
    pub count: u8,
    /// Through the cache of what nobody writes.
    pub constant: bool,
    pub offset: i64,
    /// The elements' registers.
    pub slots: [Slot; 4],
}

/// A register of one of two files.
#[derive(Clone, Copy, PartialEq)]
pub enum Slot {
    S(usize),
    W(usize),
}

/// Which memory an address is of.
#[derive(Clone, Copy, PartialEq)]
pub enum Space {
    Global,
    Shared,
    /// Either, said by the address.
    Generic,
}

/// A kernel.
pub struct Code {
    pub instructions: Vec<Instruction>,
    /// The most threads of a block.
    pub threads: u32,
    pub parameters: Vec<Parameter>,
    pub shared: Vec<super::text::Variable>,
    /// Slots of the three files.
    pub slots: [usize; 3],
    /// What is in a slot before the kernel begins.
    pub singles: Vec<(usize, u32)>,
    pub wides: Vec<(usize, u64)>,
    pub specials: Vec<(usize, Special)>,
    /// Predicates that are true in all lanes.
    pub always: Vec<usize>,
    /// Predicates that are false in all lanes.
    pub never: Vec<usize>,
}

/// A parameter, and the slot of it if the kernel reads it.
#[derive(Clone, Copy)]
pub enum Parameter {
    Pointer(Option<usize>),
    Word(Option<usize>),
    Float(Option<usize>),
}

/// A special register.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
}

/// Where a variable of shared memory begins: far from the next, and on no better boundary than it asks for.
pub fn shared_base(variable: usize, align: u64) -> u64 {
    ((variable as u64 + 1) << 20) + align
}

/// The variable of an address in shared memory.
pub fn shared_variable(address: u64) -> Option<usize> {
    usize::try_from(address >> 20).ok()?.checked_sub(1)
}

/// Where shared memory lies among generic addresses.
pub const SHARED_WINDOW: u64 = 1 << 62;
