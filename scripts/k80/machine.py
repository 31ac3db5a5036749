"""What a die of a Tesla K80 can do, and the assumptions that no data sheet states.

Owns: every constant of the model. Refuses to know: kernels and models.
"""

from dataclasses import dataclass

# Clocks of a multiprocessor that one warp instruction of a kind occupies: 32 lanes over the lanes a clock of NVIDIA's table.
UNITS = {
    "fp32": 32 / 192,
    "int": 32 / 160,
    "wide": 32 / 32,
    "convert": 32 / 32,
    "shuffle": 32 / 32,
    "double": 32 / 64,
    "lsu": 1.0,
    "tex": 1.0,
}

# Clocks until a load's registers can be read, at light load.
LATENCY = {"lds": 30, "ldg": 400, "ld": 400, "shuffle": 30}

KINDS = {
    "fp32": "FFMA FFMA32I FADD FADD32I FMUL FMUL32I",
    "int": "IADD IADD32I ISUB ISCADD ISCADD32I LOP LOP32I ISETP PSETP CSETP SEL IMNMX MOV MOV32I FSETP FMNMX FSET ISET FCMP ICMP"
    " P2R R2P",
    "wide": "IMAD IMAD32I IMUL IMUL32I IMADSP SHL SHR SHF BFE BFI PRMT FLO POPC ISAD VOTE VADD VMNMX VSET I2I S2R LDC FCHK",
    "convert": "I2F F2I F2F MUFU RRO",
    "shuffle": "SHFL",
    "double": "DADD DMUL DFMA DSETP",
    "control": "BRA SSY NOP PBK BRK PCNT CONT CAL RET EXIT BAR TEXDEPBAR MEMBAR DEPBAR BPT",
    "lds": "LDS LDL",
    "sts": "STS STL",
    "ldg": "LDG",
    "ld": "LD ATOM",
    "st": "ST STG RED",
}
KIND = {op: kind for kind, ops in KINDS.items() for op in ops.split()}


def classify(i):
    """The kind of an instruction; unknown operations stop the program."""
    kind = KIND.get(i.base)
    if kind is None:
        raise SystemExit(f"machine code has {i.op}, of which scripts/k80/machine.py does not know what it occupies: add it to KINDS")
    return kind


def passes(i):
    """Passes of a load or store through the load/store unit: 8 bytes a lane and pass from shared memory, 4 from global."""
    words = next((int(m) // 32 for m in i.mods if m in ("64", "128")), 1)
    return max(1, words // 2) if i.base in ("LDS", "STS") else words


@dataclass
class Die:
    """One die and its host."""

    multiprocessors: int = 13
    clock: float = 875e6
    warps: int = 64
    blocks: int = 16
    registers: int = 131072
    shared: int = 112 * 1024
    issue: float = 4.0
    bandwidth: float = 240e9
    # Assumed: the share of the data sheet's bandwidth that streams reach, with ECC.
    bandwidth_share: float = 0.7
    # Assumed: the share of a kernel's shorter time that its longer one hides, of waiting for memory's lines and of the rest.
    hidden: float = 0.0
    # Assumed: the shortest time of a kernel of which only bytes are counted.
    least: float = 4e-6
    # Calibrated: host and device between two kernels (the seed document's 19 ms a token over its launches).
    launch: float = 24e-6
    # Assumed: what the host waits for at the end of a pass.
    finish: float = 30e-6
    # Assumed: bytes a second and start of a copy from die to die through the host.
    link: float = 6e9
    link_start: float = 40e-6
