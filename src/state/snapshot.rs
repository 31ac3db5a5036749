//! A state as bytes: for sessions on disk, prefix reuse, and comparing two states bit by bit.
//!
//! Owns: the layout, its version, its checksum and the model it belongs to. Refuses to know: files and tokens.
//!
//! Layout, little endian: magic `VBSN`, version u32, model fingerprint (16 bytes), K/V format u32, positions u64,
//! body length u64, body, xxh3-128 of all before it. The body is layer after layer: K rows and V rows, or S and window.

use super::{Cache, LayerShape, State, StateShape};
use crate::backend::{Backend, KvFormat};
use crate::{Error, Result};
use xxhash_rust::xxh3::xxh3_128;

const MAGIC: &[u8; 4] = b"VBSN";
const VERSION: u32 = 1;
const HEADER: usize = 4 + 4 + 16 + 4 + 8 + 8;
const CHECKSUM: usize = 16;

/// A whole state in bytes, tied to the model that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    bytes: Vec<u8>,
}

fn body_len(shape: &StateShape, positions: usize) -> usize {
    let recurrent = shape.layers.iter().map(|layer| match layer {
        LayerShape::Attention(_) => 0,
        LayerShape::Delta(d) => 4 * (d.state_len() + d.window_len()),
    });
    recurrent.sum::<usize>() + positions * shape.kv_bytes_per_position()
}

fn kv_code(format: KvFormat) -> u32 {
    match format {
        KvFormat::F16 => 1,
        KvFormat::F32 => 0,
    }
}

impl Snapshot {
    /// The kept state of `state`, made by the model with this fingerprint.
    pub fn take<B: Backend>(backend: &B, state: &State<B>, fingerprint: [u8; 16]) -> Snapshot {
        let body = body_len(&state.shape, state.len);
        let mut bytes = Vec::with_capacity(HEADER + body + CHECKSUM);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(fingerprint);
        bytes.extend(kv_code(state.shape.kv).to_le_bytes());
        bytes.extend((state.len as u64).to_le_bytes());
        bytes.extend((body as u64).to_le_bytes());
        for cache in &state.layers {
            match cache {
                Cache::Kv(kv) => backend.save_kv(kv, state.len, &mut bytes),
                Cache::Recurrent(recurrent) => backend.save_recurrent(recurrent, &mut bytes),
            }
        }
        assert_eq!(bytes.len(), HEADER + body, "a backend saves what the shape says");
        bytes.extend(xxh3_128(&bytes).to_le_bytes());
        Snapshot { bytes }
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The layers' contents alone: what two states are compared by.
    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER..self.bytes.len() - CHECKSUM]
    }

    /// Positions in the snapshot.
    pub fn positions(&self) -> usize {
        u64_at(&self.bytes, 28) as usize
    }

    /// Takes stored bytes back.
    ///
    /// # Errors
    /// If they are not a snapshot, of another version, cut short or damaged, or of another model.
    pub fn from_bytes(bytes: Vec<u8>, fingerprint: [u8; 16]) -> Result<Snapshot> {
        if bytes.len() < HEADER + CHECKSUM || &bytes[..4] != MAGIC {
            return Err(Error::new("not a saved state, or cut short"));
        }
        let version = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if version != VERSION {
            return Err(Error::new(format!("saved state of version {version}; this program reads version {VERSION}")));
        }
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
        if u64_at(&bytes, 36) != (content.len() - HEADER) as u64 || xxh3_128(content).to_le_bytes() != checksum {
            return Err(Error::new("saved state is cut short or damaged (checksum differs)"));
        }
        if bytes[8..24] != fingerprint {
            return Err(Error::new("saved state belongs to another model"));
        }
        Ok(Snapshot { bytes })
    }

    /// Makes `state` what it was when the snapshot was taken. Nothing is changed on an error.
    ///
    /// # Errors
    /// If K and V are stored in another format, or the context is too short for the snapshot.
    pub fn restore<B: Backend>(&self, backend: &B, state: &mut State<B>) -> Result<()> {
        let kv = u32::from_le_bytes([self.bytes[24], self.bytes[25], self.bytes[26], self.bytes[27]]);
        if kv != kv_code(state.shape.kv) {
            return Err(Error::new(format!("saved state does not hold K and V as {}", state.shape.kv.name())));
        }
        let positions = self.positions();
        if positions > state.shape.positions {
            let have = state.shape.positions;
            return Err(Error::new(format!("saved state has {positions} positions; the context has room for {have}")));
        }
        let mut body = self.body();
        if body.len() != body_len(&state.shape, positions) {
            return Err(Error::new("saved state does not fit this model's layers"));
        }
        for (cache, shape) in state.layers.iter_mut().zip(&state.shape.layers) {
            let (layer, kv) = match shape {
                LayerShape::Attention(a) => (2 * positions * a.kv_width() * state.shape.kv.bytes(), true),
                LayerShape::Delta(d) => (4 * (d.state_len() + d.window_len()), false),
            };
            let (bytes, rest) = body.split_at(layer);
            body = rest;
            match cache {
                Cache::Kv(cache) if kv => backend.load_kv(cache, positions, bytes),
                Cache::Recurrent(cache) => backend.load_recurrent(cache, bytes),
                Cache::Kv(_) => unreachable!("caches follow the shape"),
            }
        }
        state.len = positions;
        Ok(())
    }
}

/// The recurrent layers at one position of a living sequence. K and V need no copy: rows before the position stay where
/// they are until other tokens are evaluated there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    positions: usize,
    recurrent: Vec<u8>,
}

impl Checkpoint {
    /// Positions kept when it was taken.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// The recurrent layers' bytes, layer after layer.
    pub fn as_bytes(&self) -> &[u8] {
        &self.recurrent
    }

    /// Takes stored bytes back for a state of `shape`.
    ///
    /// # Errors
    /// If their number is not that of the shape's recurrent layers.
    pub fn from_bytes(shape: &StateShape, positions: usize, recurrent: Vec<u8>) -> Result<Checkpoint> {
        match recurrent.len() == body_len(shape, 0) {
            true => Ok(Checkpoint { positions, recurrent }),
            false => Err(Error::new("saved checkpoint does not fit this model's layers")),
        }
    }
}

impl<B: Backend> State<B> {
    /// Remembers the recurrent layers as they are now.
    pub fn checkpoint(&self, backend: &B) -> Checkpoint {
        let mut recurrent = Vec::with_capacity(body_len(&self.shape, 0));
        for cache in &self.layers {
            if let Cache::Recurrent(cache) = cache {
                backend.save_recurrent(cache, &mut recurrent);
            }
        }
        Checkpoint { positions: self.len, recurrent }
    }

    /// Goes back to where `checkpoint` was taken. The tokens before it must be those evaluated in this state.
    pub fn rewind(&mut self, backend: &B, checkpoint: &Checkpoint) {
        assert!(checkpoint.positions <= self.len, "a state rewinds, it does not wind forward");
        let mut bytes = &checkpoint.recurrent[..];
        for (cache, shape) in self.layers.iter_mut().zip(&self.shape.layers) {
            if let (Cache::Recurrent(cache), LayerShape::Delta(d)) = (cache, shape) {
                let (layer, rest) = bytes.split_at(4 * (d.state_len() + d.window_len()));
                backend.load_recurrent(cache, layer);
                bytes = rest;
            }
        }
        self.len = checkpoint.positions;
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut v = [0; 8];
    v.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(v)
}
