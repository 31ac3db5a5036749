//! Text that comes in pieces.

use verbatim::text::{StopStrings, Utf8Stream};

/// Every way to cut `bytes` into pieces, as lists of pieces.
fn splits(bytes: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let borders = bytes.len().saturating_sub(1);
    (0..1u32 << borders).map(move |cuts| {
        let mut pieces = Vec::new();
        let mut start = 0;
        for end in 1..=bytes.len() {
            if end == bytes.len() || cuts >> (end - 1) & 1 == 1 {
                pieces.push(&bytes[start..end]);
                start = end;
            }
        }
        pieces
    })
}

fn streamed(pieces: &[&[u8]]) -> String {
    let mut stream = Utf8Stream::new();
    let mut text: String = pieces.iter().map(|piece| stream.push(piece)).collect();
    text.push_str(&stream.finish());
    text
}

#[test]
fn pieces_join_to_what_lossy_decoding_of_the_whole_gives_for_every_split() {
    let nasty: [&[u8]; 14] = [
        b"",
        "a\u{e9}\u{2028}\u{1f980}z".as_bytes(),
        "\u{1f469}\u{200d}\u{1f467}".as_bytes(),
        b"\xF0\x9F\xA6",
        b"\xF0\x9F\xA6\xF0\x9F\xA6\x80\xF0",
        b"\xE2\x80\xE2\x80\xA8\xC3",
        b"\x80\xBF\xC0\x80\xC1\xBF",
        b"\xED\xA0\x80\xED\xB0\x80a",
        b"\xF4\x90\x80\x80\xF5\x80\xFF",
        b"\xE0\x80\x80\xE0\xA0a",
        b"\xF0\x80\x80\x80\xF0\x90\x80",
        b"a\xFFb\xFE\xFFc\xC3\xC3\xA9",
        b"\xF0\xF0\x9F\x9F\xA6\x80\x80",
        b"\xC3\x28\xE2\x28\xA1\xF0\x28\x8C\xBC",
    ];
    for bytes in nasty {
        let whole = String::from_utf8_lossy(bytes);
        for pieces in splits(bytes) {
            assert_eq!(streamed(&pieces), whole, "{pieces:x?}");
        }
    }
}

#[test]
fn every_string_of_three_chosen_bytes_is_decoded_like_the_whole() {
    let chosen = [0x00, 0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xF5, 0xFF];
    for a in chosen {
        for b in chosen {
            for c in chosen {
                for d in [0x41, 0x80, 0xBF, 0xF0] {
                    let bytes = [a, b, c, d];
                    let whole = String::from_utf8_lossy(&bytes);
                    assert!(splits(&bytes).all(|pieces| streamed(&pieces) == whole), "{bytes:x?}");
                }
            }
        }
    }
}

#[test]
fn text_comes_as_soon_as_it_is_certain() {
    let mut stream = Utf8Stream::new();
    assert_eq!(stream.push(b"a\xF0\x9F"), "a");
    assert_eq!(stream.push(b"\xA6"), "");
    assert_eq!(stream.push(b"\x80b"), "🦀b");
    assert_eq!(stream.push(b"\xE2\x28"), "\u{FFFD}(");
    assert_eq!(stream.push(b"still going"), "still going");
    assert_eq!(stream.push(b"\xE2\x80"), "");
    assert_eq!(stream.finish(), "\u{FFFD}");
    assert_eq!(stream.finish(), "");
}

/// Where the first stop string to be completed starts, the longest of those that end together; searched naively.
fn first_stop(text: &[u8], stops: &[&str]) -> Option<usize> {
    (1..=text.len()).find_map(|end| {
        let ending = stops.iter().filter(|stop| text[..end].ends_with(stop.as_bytes()));
        ending.map(|stop| end - stop.len()).min()
    })
}

/// Longest end of `text` that begins a stop string.
fn possible_start(text: &[u8], stops: &[&str]) -> usize {
    let begins = |from: &usize| stops.iter().any(|stop| stop.as_bytes().starts_with(&text[*from..]));
    text.len() - (0..text.len()).find(begins).unwrap_or(text.len())
}

fn check_stops(text: &str, stops: &[&str]) {
    let stop = first_stop(text.as_bytes(), stops);
    for pieces in splits(text.as_bytes()) {
        let mut search = StopStrings::new(stops).unwrap();
        let (mut shown, mut seen) = (Vec::new(), Vec::new());
        for piece in &pieces {
            let pushed = search.push(piece);
            seen.extend_from_slice(piece);
            shown.extend(pushed.release);
            let stopped = first_stop(&seen, stops);
            assert_eq!(pushed.stopped, stopped.is_some(), "{pieces:?} {stops:?}");
            let certain = stopped.unwrap_or(seen.len() - possible_start(&seen, stops));
            assert_eq!(shown, seen[..certain], "{pieces:?} {stops:?}");
        }
        shown.extend(search.finish());
        assert_eq!(shown, text.as_bytes()[..stop.unwrap_or(text.len())], "{pieces:?} {stops:?}");
    }
}

#[test]
fn stop_strings_are_found_for_every_split_and_nothing_of_them_is_shown() {
    check_stops("one STOP two", &["STOP"]);
    check_stops("ababababac", &["ababac"]);
    check_stops("aaaaaaab", &["aab", "aaaaab"]);
    check_stops("xabcdy", &["abcd", "bc"]);
    check_stops("xabcdy", &["cd", "abcd", "d"]);
    check_stops("x\n\ny", &["\n\n", "\n"]);
    check_stops("naïve 🦀é", &["🦀é"]);
    check_stops("naïve 🦀", &["🦞", "ï"]);
    check_stops("è é", &["é"]);
    check_stops("no stop STO", &["STOP", "P!"]);
    check_stops("abab", &[]);
    check_stops("STOP", &["STOP"]);
    check_stops("", &["x"]);
}

#[test]
fn every_text_over_two_letters_stops_where_a_naive_search_does() {
    let words = |longest: u32| (1..=longest).flat_map(|n| (0..1u32 << n).map(move |bits| (n, bits)));
    let word =
        |(n, bits): (u32, u32)| -> String { (0..n).map(|i| if bits >> i & 1 == 1 { 'b' } else { 'a' }).collect() };
    let stops: Vec<String> = words(3).map(word).collect();
    for text in words(5).map(word) {
        for a in &stops {
            for b in &stops {
                check_stops(&text, &[a, b]);
            }
        }
    }
}

#[test]
fn nothing_follows_a_stop() {
    let mut search = StopStrings::new(&["b"]).unwrap();
    let pushed = search.push(b"abc");
    assert_eq!((pushed.release.as_slice(), pushed.stopped), (b"a".as_slice(), true));
    let pushed = search.push(b"def");
    assert_eq!((pushed.release.as_slice(), pushed.stopped), (b"".as_slice(), true));
    assert!(search.stopped());
    assert!(search.finish().is_empty());
}

#[test]
fn a_clone_goes_its_own_way() {
    let mut search = StopStrings::new(&["end"]).unwrap();
    assert!(search.push(b"the e").release == b"the ");
    let mut tried = search.clone();
    assert!(tried.push(b"nd").stopped);
    let pushed = search.push(b"gg");
    assert_eq!((pushed.release.as_slice(), pushed.stopped), (b"egg".as_slice(), false));
}

#[test]
fn an_empty_stop_string_is_refused() {
    let error = StopStrings::new(&["a", ""]).unwrap_err().to_string();
    assert_eq!(error, "--stop: expected text, found an empty string");
}
