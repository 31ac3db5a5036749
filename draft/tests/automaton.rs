//! The suffix automaton against looking everywhere.

use draft::{Automaton, Cursor, Token};

/// A generator for tests: a linear congruence modulo 2^64, upper bits only.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}

/// Positions behind the occurrences of `string` in `text`, the one at its end included.
fn ends<'a>(text: &'a [Token], string: &'a [Token]) -> impl Iterator<Item = usize> + 'a {
    (string.len()..=text.len()).filter(move |&end| text[end - string.len()..end] == *string)
}

fn occurs(text: &[Token], string: &[Token]) -> bool {
    ends(text, string).next().is_some()
}

/// The longest suffix of `text` that also ends further left.
fn naive_end(text: &[Token]) -> usize {
    let agree = |end: usize| text[..end].iter().rev().zip(text.iter().rev()).take_while(|(a, b)| a == b).count();
    (0..text.len()).map(agree).max().unwrap_or(0)
}

/// What an automaton says about a string must be true of the text.
fn assert_true(automaton: &Automaton, cursor: Cursor, string: &[Token], counted: &mut usize) {
    let text = automaton.text();
    assert_eq!(cursor.length(), string.len());
    let followed: Vec<usize> = ends(text, string).filter(|&end| end < text.len()).collect();
    let Some(found) = automaton.continuation(cursor) else {
        assert!(followed.is_empty(), "{string:?} was followed in {text:?}");
        return;
    };
    let (token, usual) = (text[found.next], found.usual);
    assert!(followed.contains(&found.next), "{string:?} does not end at {} in {text:?}", found.next);
    assert_eq!(found.sole, followed.iter().all(|&end| text[end] == token), "{string:?} in {text:?}");
    let count = followed.iter().filter(|&&end| text[end] == usual).count();
    assert_eq!(automaton.count(cursor, usual), found.count);
    assert!(automaton.count(cursor, token) <= found.count, "another token than {usual} is usual");
    assert!(1 <= found.count && found.count as usize <= count && found.visits as usize <= followed.len());
    // Short contexts of texts that repeat in themselves are not told of every occurrence.
    let exact = followed.last() == Some(&found.next)
        && (found.count as usize, found.visits as usize) == (count, followed.len());
    *counted += usize::from(exact);
}

/// One automaton and the text that it should hold, with a walking cursor and the string that it should stand for.
struct Pair {
    automaton: Automaton,
    text: Vec<Token>,
    cursor: Cursor,
    string: Vec<Token>,
}

impl Pair {
    fn new() -> Pair {
        Pair { automaton: Automaton::new(), text: Vec::new(), cursor: Cursor::default(), string: Vec::new() }
    }

    fn restart(&mut self) {
        self.automaton.clear();
        (self.cursor, self.string) = (Cursor::default(), Vec::new());
        self.text.iter().for_each(|&token| self.automaton.push(token));
    }

    fn walk(&mut self, token: Token) {
        self.automaton.advance(&mut self.cursor, token);
        self.string.push(token);
        while !occurs(&self.text, &self.string) {
            self.string.remove(0);
        }
        assert_eq!(self.cursor.length(), self.string.len(), "{:?} in {:?}", self.string, self.text);
    }

    fn push(&mut self, token: Token) {
        self.automaton.push(token);
        self.text.push(token);
        // A push may split the state of a cursor: walks begin anew.
        (self.cursor, self.string) = (Cursor::default(), Vec::new());
    }
}

fn operate(operations: usize, longest: usize, chance: &mut Chance) {
    let mut pair = Pair::new();
    let (mut asked, mut exact) = (0, 0);
    let mut alphabet = 2;
    for _ in 0..operations {
        match chance.below(64) {
            0 => {
                alphabet = [1, 2, 3, 5, 40][chance.below(5)];
                pair.text.clear();
                pair.restart();
            }
            1 => {
                pair.text.truncate(chance.below(pair.text.len() + 1));
                pair.restart();
            }
            2..=23 if pair.text.len() < longest => pair.push(chance.below(alphabet) as Token),
            24..=27 => {
                let end = pair.automaton.end();
                assert_eq!(end.length(), naive_end(&pair.text), "{:?}", pair.text);
                let string = &pair.text[pair.text.len() - end.length()..];
                asked += 1;
                assert_true(&pair.automaton, end, string, &mut exact);
            }
            28..=31 => {
                asked += 1;
                assert_true(&pair.automaton, pair.cursor, &pair.string, &mut exact);
            }
            _ => pair.walk(chance.below(alphabet + 1) as Token),
        }
    }
    assert!(exact * 100 >= asked * 85, "only {exact} of {asked} counts are exact");
}

#[test]
fn random_operations_agree_with_a_naive_search() {
    let operations = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    operate(operations, 60, &mut Chance(1));
}

#[test]
fn every_substring_of_every_short_text_is_found_and_no_other_string() {
    for code in 0..3usize.pow(9) {
        let text: Vec<Token> = (0..9).map(|i| (code / 3usize.pow(i) % 3) as Token).collect();
        let text = &text[..1 + code % 9];
        let automaton = Automaton::of(text);
        assert_eq!(automaton.end().length(), naive_end(text), "{text:?}");
        for start in 0..text.len() {
            let mut cursor = Cursor::default();
            text[start..].iter().for_each(|&token| automaton.advance(&mut cursor, token));
            assert_eq!(cursor.length(), text.len() - start);
            automaton.advance(&mut cursor, 7);
            assert_eq!(cursor.length(), 0);
        }
    }
}

#[test]
fn a_state_has_many_transitions_in_a_large_vocabulary() {
    let text: Vec<Token> = (0..20_000).flat_map(|i| [5, 1_000_000 + i, 6]).collect();
    let automaton = Automaton::of(&text);
    for i in [0, 1, 777, 19_998, 19_999] {
        let mut cursor = Cursor::default();
        [5, 1_000_000 + i].into_iter().for_each(|token| automaton.advance(&mut cursor, token));
        let found = automaton.continuation(cursor).unwrap();
        assert_eq!((cursor.length(), text[found.next], found.sole, found.visits), (2, 6, true, 1));
    }
    let mut cursor = Cursor::default();
    automaton.advance(&mut cursor, 5);
    let found = automaton.continuation(cursor).unwrap();
    assert_eq!((text[found.next], found.count, found.visits, found.sole), (1_019_999, 1, 20_000, false));
}

#[test]
fn memory_and_work_stay_in_proportion_to_the_text() {
    let mut chance = Chance(3);
    let texts: [Vec<Token>; 4] = [
        vec![7; 50_000],
        (0..50_000).map(|i| i % 17).collect(),
        (0..50_000).map(|_| chance.below(4) as Token).collect(),
        (0..50_000).collect(),
    ];
    for text in texts {
        let automaton = Automaton::of(&text);
        let bytes = automaton.bytes() / text.len();
        assert!(bytes <= 400, "{bytes} bytes a token");
    }
}
