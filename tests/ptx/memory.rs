//! Memory that knows what was written to it.
//!
//! Owns: addresses, the bytes behind them, which of them were ever written. Refuses to know: threads, instructions.
//!
//! Every allocation has 4 GiB of addresses to itself, so that an address beside one is in none. What a kernel computes from bytes
//! that nobody wrote is as good as not written, wherever it is put.

use super::code::shared_variable;
use super::races::Shadow;

/// Where an allocation begins in its addresses.
const BEGIN: u64 = 256;
/// Bytes whose marks are kept together.
const GROUP: usize = 16;

/// An allocation, or a variable of shared memory.
pub struct Region {
    base: u64,
    bytes: Vec<u8>,
    /// By groups of bytes, a bit for each that was written.
    written: Vec<u16>,
    pub shadow: Shadow,
}

impl Region {
    pub fn new(base: u64, len: usize) -> Region {
        Region { base, bytes: vec![0; len], written: vec![0; len.div_ceil(GROUP)], shadow: Shadow::default() }
    }

    /// Makes it as if nobody had written, and of another size.
    pub fn reset(&mut self, base: u64, len: usize) {
        self.base = base;
        self.bytes.resize(len, 0);
        self.written.clear();
        self.written.resize(len.div_ceil(GROUP), 0);
    }

    /// Where `len` bytes from an address on lie.
    pub fn offset(&self, address: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        (offset.checked_add(len)? <= self.bytes.len()).then_some(offset)
    }

    /// A number of 1, 2, 4 or 8 bytes at a multiple of its size, and whether all of them were written.
    pub fn load(&self, offset: usize, bytes: usize) -> (u64, bool) {
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(&self.bytes[offset..offset + bytes]);
        let mask = ((1u32 << bytes) - 1) << (offset % GROUP);
        (u64::from_le_bytes(value), u32::from(self.written[offset / GROUP]) & mask == mask)
    }

    /// The same, written; `is_known`: whether it is made of what was written.
    pub fn store(&mut self, offset: usize, bytes: usize, value: u64, is_known: bool) {
        self.bytes[offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        let mask = (((1u32 << bytes) - 1) << (offset % GROUP)) as u16;
        let group = &mut self.written[offset / GROUP];
        *group = if is_known { *group | mask } else { *group & !mask };
    }

    fn is_written(&self, at: usize) -> bool {
        self.written[at / GROUP] >> (at % GROUP) & 1 == 1
    }

    /// Marks bytes as written.
    fn mark_all(&mut self, mut at: usize, len: usize) {
        let end = at + len;
        while at < end {
            if at.is_multiple_of(GROUP) && end - at >= GROUP {
                self.written[at / GROUP] = u16::MAX;
                at += GROUP;
            } else {
                self.mark(at, true);
                at += 1;
            }
        }
    }

    fn mark(&mut self, at: usize, is_written: bool) {
        let bit = 1 << (at % GROUP);
        let group = &mut self.written[at / GROUP];
        *group = if is_written { *group | bit } else { *group & !bit };
    }
}

/// The memory of a device.
pub struct Memory {
    /// Stands in the highest bits of its addresses.
    device: u64,
    regions: Vec<Option<Region>>,
    used: usize,
}

impl Memory {
    /// `device`: 1 to 1000; addresses of one device are none of another.
    pub fn new(device: u64) -> Memory {
        Memory { device, regions: Vec::new(), used: 0 }
    }

    /// Bytes that are allocated.
    pub fn used(&self) -> usize {
        self.used
    }

    pub fn allocate(&mut self, bytes: usize) -> u64 {
        let base = self.device << 52 | (self.regions.len() as u64) << 32 | BEGIN;
        self.regions.push(Some(Region::new(base, bytes)));
        self.used += bytes;
        base
    }

    pub fn free(&mut self, address: u64) {
        let freed = self.slot(address).and_then(|slot| self.regions[slot].take());
        self.used -= freed.map_or(0, |region| region.bytes.len());
    }

    fn slot(&self, address: u64) -> Option<usize> {
        let slot = (address >> 32 & 0xf_ffff) as usize;
        (address >> 52 == self.device && slot < self.regions.len()).then_some(slot)
    }

    /// The allocation of an address, and where `len` bytes from there on lie in it.
    pub fn locate(&mut self, address: u64, len: usize) -> Option<(&mut Region, usize)> {
        let slot = self.slot(address)?;
        let region = self.regions[slot].as_mut()?;
        let offset = region.offset(address, len)?;
        Some((region, offset))
    }

    /// # Errors
    /// If an address is none of this device.
    pub fn write(&mut self, to: u64, from: &[u8]) -> Result<(), String> {
        let (region, offset) = self.locate(to, from.len()).ok_or_else(|| outside(to, from.len()))?;
        region.bytes[offset..offset + from.len()].copy_from_slice(from);
        region.mark_all(offset, from.len());
        Ok(())
    }

    /// Bytes, and whether each was written.
    ///
    /// # Errors
    /// If an address is none of this device.
    pub fn read(&mut self, from: u64, len: usize) -> Result<(Vec<u8>, Vec<bool>), String> {
        let (region, offset) = self.locate(from, len).ok_or_else(|| outside(from, len))?;
        let known = (offset..offset + len).map(|at| region.is_written(at)).collect();
        Ok((region.bytes[offset..offset + len].to_vec(), known))
    }

    /// Puts what [`Memory::read`] gave.
    ///
    /// # Errors
    /// If an address is none of this device.
    pub fn put(&mut self, to: u64, (bytes, known): &(Vec<u8>, Vec<bool>)) -> Result<(), String> {
        self.write(to, bytes)?;
        let (region, offset) = self.locate(to, bytes.len()).ok_or_else(|| outside(to, bytes.len()))?;
        known.iter().zip(offset..).filter(|(known, _)| !**known).for_each(|(_, at)| region.mark(at, false));
        Ok(())
    }
}

fn outside(address: u64, len: usize) -> String {
    format!("{len} bytes at {address:#x} are in no allocation of this device")
}

/// The variable of an address in a block's shared memory, and where `len` bytes from there on lie in it.
pub fn locate_shared(shared: &mut [Region], address: u64, len: usize) -> Option<(&mut Region, usize)> {
    let region = shared.get_mut(shared_variable(address)?)?;
    let offset = region.offset(address, len)?;
    Some((region, offset))
}
