//! An online suffix automaton: every substring of a text, and what followed it.
//!
//! Owns: the index, the text it indexes, what followed each context how often and where last. Refuses to know: what is
//! guessed from that, and how sure anybody is.
//!
//! A state stands for all substrings that end at the same places; its transitions are the tokens that followed them
//! (Blumer et al. 1985). Almost every state has one transition, so the first is stored in the state; further ones lie in
//! one pool, found through an open-addressing table by (state, token) and chained by state, since splitting a state
//! copies its transitions. A push is amortised O(1): the states that it visits to learn what followed where are bounded.

use crate::Token;

/// No state, no transition, no position.
const NONE: u32 = u32::MAX;
/// The state of the empty string.
const ROOT: u32 = 0;
/// Contexts of the end that learn what followed them, longest first. Shorter ones than that miss a few occurrences: only
/// texts that repeat in themselves have so many.
const VISITED: usize = 16;

/// The substrings of a growing text.
#[derive(Debug, Clone)]
pub struct Automaton {
    text: Vec<Token>,
    states: Vec<State>,
    /// Second and further transitions.
    pool: Vec<Pooled>,
    /// Open addressing over `pool`; [`NONE`] is free.
    slots: Vec<u32>,
    last: u32,
}

/// A transition: `token` followed, `count` times.
#[derive(Debug, Clone, Copy)]
struct Edge {
    token: Token,
    target: u32,
    count: u32,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// Tokens of its longest string.
    length: u32,
    /// The state of the longest suffix that also ends elsewhere.
    link: u32,
    /// Position of the token that followed last; [`NONE`] if nothing did.
    recent: u32,
    /// Tokens that followed.
    visits: u32,
    /// The first transition; its target is [`NONE`] if there is none.
    edge: Edge,
    /// The latest further transition in the pool, or [`NONE`].
    more: u32,
    /// The transition with the highest count, in the pool, or [`NONE`] for the first.
    top: u32,
}

#[derive(Debug, Clone, Copy)]
struct Pooled {
    state: u32,
    /// The one added before it to the same state.
    next: u32,
    edge: Edge,
}

/// A place in the automaton: a string of `length` tokens that occurs in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    state: u32,
    length: u32,
}

impl Cursor {
    /// Tokens of the string.
    pub fn length(&self) -> usize {
        self.length as usize
    }
}

/// What followed a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation {
    /// Position in the text of the token that followed the most recent occurrence.
    pub next: usize,
    /// The token that followed most often; of several, the one that did so last.
    pub usual: Token,
    /// How often it followed.
    pub count: u32,
    /// How often any token followed.
    pub visits: u32,
    /// Whether nothing else ever followed.
    pub sole: bool,
}

impl Automaton {
    /// The automaton of the empty text.
    pub fn new() -> Automaton {
        let mut automaton =
            Automaton { text: Vec::new(), states: Vec::new(), pool: Vec::new(), slots: Vec::new(), last: ROOT };
        automaton.add_state(0, NONE);
        automaton
    }

    /// The automaton of `text`.
    pub fn of(text: &[Token]) -> Automaton {
        let mut automaton = Automaton::new();
        text.iter().for_each(|&token| automaton.push(token));
        automaton
    }

    /// The text.
    pub fn text(&self) -> &[Token] {
        &self.text
    }

    /// Tokens of the text.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether the text has no tokens.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Forgets the text and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.states.clear();
        self.pool.clear();
        self.slots.fill(NONE);
        self.last = self.add_state(0, NONE);
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.text.capacity() * size_of::<Token>()
            + self.states.capacity() * size_of::<State>()
            + self.pool.capacity() * size_of::<Pooled>()
            + self.slots.capacity() * size_of::<u32>()
    }

    /// Adds a token behind the text.
    pub fn push(&mut self, token: Token) {
        assert!(self.text.len() < (NONE / 2) as usize, "a text of 2^31 tokens cannot be indexed");
        let position = self.text.len() as u32;
        self.text.push(token);
        let whole = self.add_state(position + 1, ROOT);
        let mut at = self.last;
        while at != NONE && self.edge(at, token).is_none() {
            self.add_edge(at, Edge { token, target: whole, count: 1 });
            self.visit(at, position);
            at = self.states[at as usize].link;
        }
        if at != NONE {
            self.states[whole as usize].link = self.suffix_state(at, token);
            self.tell(at, token, position);
        }
        self.last = whole;
    }

    /// The longest string at the text's end that also occurs further left (it may overlap the end).
    pub fn end(&self) -> Cursor {
        let last = &self.states[self.last as usize];
        if last.link == NONE {
            return Cursor::default();
        }
        Cursor { state: last.link, length: self.states[last.link as usize].length }
    }

    /// Appends a token to the cursor's string and cuts it from the left until it occurs in the text: matching
    /// statistics, amortised O(1).
    pub fn advance(&self, cursor: &mut Cursor, token: Token) {
        loop {
            if let Some(edge) = self.edge(cursor.state, token) {
                *cursor = Cursor { state: edge.target, length: cursor.length + 1 };
                return;
            }
            if !self.shorten(cursor) {
                return;
            }
        }
    }

    /// Cuts the cursor's string from the left to the longest suffix that ends at more places; `false` if it is empty.
    pub fn shorten(&self, cursor: &mut Cursor) -> bool {
        let link = self.states[cursor.state as usize].link;
        if link == NONE {
            return false;
        }
        *cursor = Cursor { state: link, length: self.states[link as usize].length };
        true
    }

    /// What followed the cursor's string; nothing if it only occurs at the text's end.
    pub fn continuation(&self, cursor: Cursor) -> Option<Continuation> {
        let state = &self.states[cursor.state as usize];
        let next = (state.recent != NONE).then_some(state.recent as usize)?;
        let Edge { token: usual, count, .. } = self.top(state);
        Some(Continuation { next, usual, count, visits: state.visits, sole: state.more == NONE })
    }

    /// How often `token` followed the cursor's string.
    pub fn count(&self, cursor: Cursor, token: Token) -> u32 {
        self.edge(cursor.state, token).map_or(0, |edge| edge.count)
    }

    /// The state of the suffix that `whole` shares with another place: the target of `at` by `token`, split if it
    /// stands for longer strings too.
    fn suffix_state(&mut self, at: u32, token: Token) -> u32 {
        let target = self.edge(at, token).map_or(ROOT, |edge| edge.target);
        let length = self.states[at as usize].length + 1;
        if self.states[target as usize].length == length {
            return target;
        }
        let clone = self.split(target, length);
        let mut at = at;
        while at != NONE {
            match self.edge_mut(at, token) {
                Some(edge) if edge.target == target => edge.target = clone,
                _ => break,
            }
            at = self.states[at as usize].link;
        }
        clone
    }

    /// Splits the strings of at most `length` tokens off a state: what followed them is the same so far.
    fn split(&mut self, state: u32, length: u32) -> u32 {
        let State { link, recent, visits, edge, mut more, top, .. } = self.states[state as usize];
        let clone = self.add_state(length, link);
        let made = &mut self.states[clone as usize];
        (made.recent, made.visits, made.edge) = (recent, visits, edge);
        self.states[state as usize].link = clone;
        while more != NONE {
            let Pooled { next, edge, .. } = self.pool[more as usize];
            if more == top {
                self.states[clone as usize].top = self.pool.len() as u32;
            }
            self.add_edge(clone, edge);
            more = next;
        }
        clone
    }

    /// Tells `at` and its suffixes, longest first, that `token` followed at `position`.
    fn tell(&mut self, mut at: u32, token: Token, position: u32) {
        for _ in 0..VISITED {
            let Some(edge) = self.edge_mut(at, token) else {
                return;
            };
            edge.count = edge.count.saturating_add(1);
            let count = edge.count;
            if count >= self.top(&self.states[at as usize]).count {
                let first = self.states[at as usize].edge.token == token;
                self.states[at as usize].top = if first { NONE } else { self.slots[self.slot(at, token)] };
            }
            self.visit(at, position);
            at = self.states[at as usize].link;
            if at == NONE {
                return;
            }
        }
    }

    fn visit(&mut self, state: u32, position: u32) {
        let state = &mut self.states[state as usize];
        state.recent = position;
        state.visits = state.visits.saturating_add(1);
    }

    fn add_state(&mut self, length: u32, link: u32) -> u32 {
        let edge = Edge { token: 0, target: NONE, count: 0 };
        self.states.push(State { length, link, recent: NONE, visits: 0, edge, more: NONE, top: NONE });
        self.states.len() as u32 - 1
    }

    fn top(&self, state: &State) -> Edge {
        if state.top == NONE { state.edge } else { self.pool[state.top as usize].edge }
    }

    fn edge(&self, state: u32, token: Token) -> Option<&Edge> {
        let State { edge, more, .. } = &self.states[state as usize];
        if edge.token == token && edge.target != NONE {
            return Some(edge);
        }
        if *more == NONE {
            return None;
        }
        let pooled = self.slots[self.slot(state, token)];
        (pooled != NONE).then(|| &self.pool[pooled as usize].edge)
    }

    fn edge_mut(&mut self, state: u32, token: Token) -> Option<&mut Edge> {
        let State { edge, more, .. } = self.states[state as usize];
        if edge.token == token && edge.target != NONE {
            return Some(&mut self.states[state as usize].edge);
        }
        if more == NONE {
            return None;
        }
        let pooled = self.slots[self.slot(state, token)];
        (pooled != NONE).then(|| &mut self.pool[pooled as usize].edge)
    }

    /// Adds a transition that the state does not have.
    fn add_edge(&mut self, state: u32, edge: Edge) {
        let source = &mut self.states[state as usize];
        if source.edge.target == NONE {
            source.edge = edge;
            return;
        }
        let added = self.pool.len() as u32;
        let next = std::mem::replace(&mut source.more, added);
        self.pool.push(Pooled { state, next, edge });
        if self.pool.len() * 3 > self.slots.len() * 2 {
            self.grow();
        } else {
            let slot = self.slot(state, edge.token);
            self.slots[slot] = added;
        }
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        self.slots.clear();
        self.slots.resize(size, NONE);
        for i in 0..self.pool.len() {
            let Pooled { state, edge, .. } = self.pool[i];
            let slot = self.slot(state, edge.token);
            self.slots[slot] = i as u32;
        }
    }

    /// The slot of a pooled transition, or the free one where it belongs. The table is never full.
    fn slot(&self, state: u32, token: Token) -> usize {
        let mask = self.slots.len() - 1;
        // The odd constant is 2^64 over the golden ratio; the upper half of the product is well mixed.
        let key = (u64::from(state) << 32 | u64::from(token)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut slot = (key >> 32) as usize & mask;
        loop {
            let pooled = self.slots[slot];
            if pooled == NONE {
                return slot;
            }
            let found = &self.pool[pooled as usize];
            if found.state == state && found.edge.token == token {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }
}

impl Default for Automaton {
    fn default() -> Self {
        Automaton::new()
    }
}
