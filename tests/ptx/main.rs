#[allow(dead_code)]
mod arithmetic;
#[allow(dead_code)]
mod code;
mod decode;
mod opcodes;
mod text;

#[test]
fn parse_all() {
    let mut bad = std::collections::BTreeMap::new();
    for file in std::fs::read_dir("/tmp/ptxout").unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        match text::parse(&text) {
            Err(e) => println!("{}: {e}", path.display()),
            Ok((_, entries)) => {
                for e in entries {
                    match decode::decode(&e) {
                        Ok(c) => { if c.slots[0] > 4000 { println!("{:?} {}", c.slots, c.instructions.len()) } }
                        Err(e) => { bad.insert(e.split(": ").nth(1).unwrap().to_owned() + e.split(": ").nth(2).unwrap().split(' ').next().unwrap(), e); }
                    }
                }
            }
        }
    }
    bad.values().for_each(|e| println!("{e}"));
    assert!(bad.is_empty());
}
