//! From statements to instructions.
//!
//! Owns: where operands lie, the instructions that do more than compute. Refuses to know: how they run.

use std::collections::HashMap;

use super::code::{Access, Code, Instruction, Op, Parameter, Slot, Space, Special, shared_base};
use super::opcodes;
use super::text::{Entry, Operand, Statement};

type Outcome<T> = Result<T, String>;

/// A kernel that is being decoded.
struct Slots<'a> {
    entry: &'a Entry,
    /// By file, from a register or another operand to its slot.
    known: [HashMap<String, usize>; 3],
    code: Code,
}

/// A file of registers.
#[derive(Clone, Copy, PartialEq, Debug)]
enum File {
    S,
    W,
    P,
}

/// The kernel, ready to run.
///
/// # Errors
/// What is not understood, with its line.
pub fn decode(entry: &Entry) -> Outcome<Code> {
    let code = Code {
        instructions: Vec::new(),
        threads: entry.threads,
        parameters: Vec::new(),
        shared: entry.shared.clone(),
        slots: [0; 3],
        singles: Vec::new(),
        wides: Vec::new(),
        specials: Vec::new(),
        always: Vec::new(),
        never: Vec::new(),
    };
    let mut slots = Slots { entry, known: Default::default(), code };
    for (kind, _) in &entry.parameters {
        slots.code.parameters.push(match kind.as_str() {
            ".u64" => Parameter::Pointer(None),
            ".u32" => Parameter::Word(None),
            ".f32" => Parameter::Float(None),
            _ => return Err(format!("{}: a parameter of type {kind}", entry.name)),
        });
    }
    for statement in &entry.statements {
        let told = |why| format!("{}, line {}: {why}: {}", entry.name, statement.line, statement.text);
        let instruction = slots.instruction(statement).map_err(told)?;
        slots.code.instructions.push(instruction);
    }
    match slots.code.instructions.last() {
        Some(Instruction { op: Op::Return, guard: None, .. }) => Ok(slots.code),
        _ => Err(format!("{}: does not end in ret", entry.name)),
    }
}

impl Slots<'_> {
    fn instruction(&mut self, statement: &Statement) -> Outcome<Instruction> {
        let Statement { line, guard, opcode, operands, text } = statement;
        let guard = match guard {
            Some((name, negated)) => Some((self.register(name, File::P)?, *negated)),
            None => None,
        };
        let (op, d, abc) = match opcodes::op(opcode) {
            Some(op) => self.computed(op, opcode, operands)?,
            None => self.other(opcode, operands)?,
        };
        Ok(Instruction { op, d, abc, guard, line: *line, text: text.clone() })
    }

    /// Operands of what only computes.
    fn computed(&mut self, op: Op, opcode: &str, operands: &[Operand]) -> Outcome<(Op, usize, [usize; 3])> {
        use File::{P, S, W};
        let (result, files): (File, &[File]) = match op {
            Op::S(_) => (S, &[S]),
            Op::Ss(_) => (S, &[S, S]),
            Op::Sss(_) => (S, &[S, S, S]),
            Op::SToW(_) => (W, &[S]),
            Op::SsToW(_) => (W, &[S, S]),
            Op::WToS(_) => (S, &[W]),
            Op::W(_) => (W, &[W]),
            Op::Ww(_) => (W, &[W, W]),
            Op::WsToW(_) => (W, &[W, S]),
            Op::SsToP(_) => (P, &[S, S]),
            Op::WwToP(_) => (P, &[W, W]),
            Op::P(_) if operands.len() == 2 => (P, &[P]),
            Op::P(_) => (P, &[P, P]),
            Op::SelectS => (S, &[S, S, P]),
            Op::SelectW => (W, &[W, W, P]),
            _ => return Err("not an instruction that computes".into()),
        };
        if operands.len() != files.len() + 1 {
            return Err(format!("expected {} operands", files.len() + 1));
        }
        let plain = |operand: &Operand| match operand {
            Operand::Plain(name) => Ok(name.clone()),
            _ => Err("expected a plain operand"),
        };
        let names = operands.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        self.check_halves(opcode, &names)?;
        let d = self.register(&names[0], result)?;
        let mut abc = [0; 3];
        for ((slot, file), name) in abc.iter_mut().zip(files).zip(&names[1..]) {
            *slot = self.operand(name, *file)?;
        }
        if files.len() == 1 {
            abc[1] = abc[0];
        }
        Ok((op, d, abc))
    }

    /// 16-bit registers stand only where 16 bits are meant.
    fn check_halves(&self, opcode: &str, names: &[String]) -> Outcome<()> {
        let is_half = |name: &String| self.kind(name).is_some_and(|kind| kind == ".b16");
        if names.iter().any(is_half) && !opcode.contains("16") {
            return Err("a 16-bit register in an instruction of another width".into());
        }
        Ok(())
    }

    /// The type of a register.
    fn kind(&self, name: &str) -> Option<&str> {
        let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let prefix = &name[..name.len() - digits.len()];
        let (kind, count) = self.entry.registers.get(prefix)?;
        digits.parse::<u32>().is_ok_and(|number| number < *count).then_some(kind)
    }

    fn slot(&mut self, name: &str, file: File) -> (usize, bool) {
        let (known, slots) = (&mut self.known[file as usize], &mut self.code.slots[file as usize]);
        if let Some(slot) = known.get(name) {
            return (*slot, false);
        }
        known.insert(name.to_owned(), *slots);
        *slots += 1;
        (*slots - 1, true)
    }

    fn register(&mut self, name: &str, file: File) -> Outcome<usize> {
        let found = match self.kind(name) {
            Some(".pred") => File::P,
            Some(".b16" | ".b32" | ".f32") => File::S,
            Some(".b64") => File::W,
            Some(kind) => return Err(format!("a register of type {kind}")),
            None => return Err(format!("expected a register, found {name}")),
        };
        if found == file { Ok(self.slot(name, file).0) } else { Err(format!("{name} is of another width")) }
    }

    /// A register, a number, a special register, or the address of a variable.
    fn operand(&mut self, name: &str, file: File) -> Outcome<usize> {
        if let Some(special) = special(name).filter(|_| file == File::S) {
            let (slot, new) = self.slot(name, file);
            self.code.specials.extend(new.then_some((slot, special)));
            return Ok(slot);
        }
        if name.starts_with('%') {
            return self.register(name, file);
        }
        let variable = self.entry.shared.iter().position(|variable| variable.name == name);
        let (slot, new) = self.slot(name, file);
        let not_understood = || format!("an operand that is not understood: {name}");
        if !new {
            return Ok(slot);
        }
        match (file, variable) {
            (File::W, Some(i)) => self.code.wides.push((slot, shared_base(i, self.entry.shared[i].align))),
            (File::W, None) => self.code.wides.push((slot, name.parse::<i64>().map_err(|_| not_understood())? as u64)),
            (File::S, _) => self.code.singles.push((slot, number(name).ok_or_else(not_understood)?)),
            (File::P, _) if name == "0" => self.code.never.push(slot),
            (File::P, _) if name == "-1" => self.code.always.push(slot),
            (File::P, _) => return Err(not_understood()),
        }
        Ok(slot)
    }

    fn several<const N: usize>(&mut self, operand: &Operand) -> Outcome<[usize; N]> {
        let Operand::Several(names) = operand else { return Err("expected registers in braces".into()) };
        let slots = names.iter().map(|name| self.register(name, File::S)).collect::<Outcome<Vec<_>>>()?;
        slots.try_into().map_err(|_| format!("expected {N} registers"))
    }

    /// What touches memory, jumps, or needs several lanes.
    fn other(&mut self, opcode: &str, operands: &[Operand]) -> Outcome<(Op, usize, [usize; 3])> {
        use Operand::{At, Both, Plain};
        let mut parts = opcode.split('.');
        match (parts.next().unwrap_or(""), operands) {
            ("ld", [to, At(base, offset)]) => return self.load(&parts.collect::<Vec<_>>(), to, base, *offset),
            ("st", [At(base, offset), from]) => {
                let access = self.access(&parts.collect::<Vec<_>>(), from, *offset)?;
                if access.constant {
                    return Err("a store to what nobody writes".into());
                }
                return Ok((Op::Store(access), 0, [self.operand(base, File::W)?, 0, 0]));
            }
            _ => {}
        }
        Ok(match (opcode, operands) {
            ("bra" | "bra.uni", [Plain(label)]) => {
                let to = self.entry.labels.get(label).ok_or("there is no such label")?;
                (Op::Branch(*to), 0, [0; 3])
            }
            ("ret", []) => (Op::Return, 0, [0; 3]),
            ("bar.sync", [Plain(number)]) if number == "0" => (Op::Barrier, 0, [0; 3]),
            ("bar.warp.sync", [Plain(mask)]) => (Op::WarpBarrier, 0, [self.operand(mask, File::S)?, 0, 0]),
            ("shfl.sync.bfly.b32", [Both(d, p), Plain(a), Plain(b), Plain(c), Plain(mask)]) => {
                let abc = [self.operand(a, File::S)?, self.operand(b, File::S)?, self.operand(c, File::S)?];
                let op = Op::ShuffleXor(self.register(p, File::P)?, self.operand(mask, File::S)?);
                (op, self.register(d, File::S)?, abc)
            }
            ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", [d, a, b, c]) => {
                let op = Op::Mma(self.several(d)?, self.several(a)?, self.several(b)?, self.several(c)?);
                (op, 0, [0; 3])
            }
            ("bfi.b32", [Plain(d), Plain(a), Plain(b), Plain(from), Plain(len)]) => {
                let (Some(from), Some(len)) = (number(from), number(len)) else {
                    return Err("expected a field that is known".into());
                };
                let abc = [self.operand(a, File::S)?, self.operand(b, File::S)?, 0];
                (Op::Insert(from & 255, len & 255), self.register(d, File::S)?, abc)
            }
            ("atom.global.max.u32", [Plain(d), At(base, offset), Plain(value)]) => {
                let abc = [self.register(base, File::W)?, self.operand(value, File::S)?, 0];
                (Op::AtomicMax(*offset), self.register(d, File::S)?, abc)
            }
            _ => return Err("there is no such instruction, or not with such operands".into()),
        })
    }

    fn load(&mut self, parts: &[&str], to: &Operand, base: &str, offset: i64) -> Outcome<(Op, usize, [usize; 3])> {
        if let (["param", kind], Operand::Plain(name)) = (parts, to) {
            return self.parameter(kind, name, base, offset);
        }
        let access = self.access(parts, to, offset)?;
        Ok((Op::Load(access), 0, [self.operand(base, File::W)?, 0, 0]))
    }

    /// A load of a parameter is a move from its slot.
    fn parameter(&mut self, kind: &str, to: &str, name: &str, offset: i64) -> Outcome<(Op, usize, [usize; 3])> {
        let position = self.entry.parameters.iter().position(|(_, parameter)| parameter == name);
        let i = position.filter(|_| offset == 0).ok_or("there is no such parameter")?;
        if self.entry.parameters[i].0.strip_prefix('.') != Some(kind) {
            return Err("a parameter read as another type".into());
        }
        let file = if kind == "u64" { File::W } else { File::S };
        let (slot, d) = (self.slot(name, file).0, self.register(to, file)?);
        match &mut self.code.parameters[i] {
            Parameter::Pointer(known) | Parameter::Word(known) | Parameter::Float(known) => *known = Some(slot),
        }
        let op = opcodes::op(if file == File::W { "mov.u64" } else { "mov.b32" }).ok_or("cannot be moved")?;
        Ok((op, d, [slot, slot, 0]))
    }

    /// `space[.nc][.v2|.v4].type`, and the registers.
    fn access(&mut self, parts: &[&str], registers: &Operand, offset: i64) -> Outcome<Access> {
        let (space, parts) = match parts {
            ["global", rest @ ..] => (Space::Global, rest),
            ["shared", rest @ ..] => (Space::Shared, rest),
            rest => (Space::Generic, rest),
        };
        let (constant, parts) = match parts {
            ["nc", rest @ ..] if space == Space::Global => (true, rest),
            rest => (false, rest),
        };
        let (count, kind) = match parts {
            ["v2", kind] => (2, *kind),
            ["v4", kind] => (4, *kind),
            [kind] => (1, *kind),
            _ => return Err("there is no such access".into()),
        };
        let bytes = match kind {
            "u8" => 1,
            "u16" => 2,
            "u32" | "f32" => 4,
            "u64" => 8,
            _ => return Err("an access of another type".into()),
        };
        let names = match registers {
            Operand::Plain(name) if count == 1 => std::slice::from_ref(name),
            Operand::Several(names) if names.len() == count => names,
            _ => return Err("expected as many registers as elements".into()),
        };
        let mut slots = [Slot::S(0); 4];
        for (slot, name) in slots.iter_mut().zip(names) {
            let (width, file) = match self.kind(name) {
                Some(".b16") => (2, File::S),
                Some(".b32" | ".f32") => (4, File::S),
                Some(".b64") => (8, File::W),
                _ => return Err(format!("expected a register, found {name}")),
            };
            if width < bytes {
                return Err(format!("{name} is narrower than the element"));
            }
            let at = self.register(name, file)?;
            *slot = if file == File::W { Slot::W(at) } else { Slot::S(at) };
        }
        Ok(Access { space, bytes, count: count as u8, constant, offset, slots })
    }
}

/// An integer of 32 bits, with or without a sign, or `0f` and the bits of a single.
fn number(text: &str) -> Option<u32> {
    if let Some(bits) = text.strip_prefix("0f") {
        return u32::from_str_radix(bits, 16).ok().filter(|_| bits.len() == 8);
    }
    let number: i64 = text.parse().ok()?;
    (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&number).then_some(number as u32)
}

fn special(name: &str) -> Option<Special> {
    let (register, axis) = name.split_once('.')?;
    let axis = ["x", "y", "z"].iter().position(|known| *known == axis)?;
    match register {
        "%tid" => Some(Special::Thread(axis)),
        "%ntid" => Some(Special::Threads(axis)),
        "%ctaid" => Some(Special::Block(axis)),
        "%nctaid" => Some(Special::Blocks(axis)),
        _ => None,
    }
}
