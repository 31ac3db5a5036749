//! smoke
use kernels::*;
#[test]
fn runs() {
    let d = Emulator::new(37, 0).unwrap();
    let a = d.allocate(4 * 300).unwrap();
    let o = d.allocate(4 * 300).unwrap();
    let x: Vec<u8> = (0..300).flat_map(|i| (i as f32).to_le_bytes()).collect();
    d.upload(a.at, &x).unwrap();
    let k = Kernel { file: "probe", variant: "1", name: "arguments" };
    d.launch(
        &k,
        Grid { blocks: [2, 1, 1], threads: [256, 1], shared: 0 },
        &[Arg::At(a.at), Arg::Float(2.0), Arg::Int(3), Arg::Int(300), Arg::At(o.at)],
    )
    .unwrap();
    let mut y = vec![0; 1200];
    d.download(o.at, &mut y).unwrap();
    let y: Vec<f32> = y.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
    assert_eq!(y[299], 601.0);
    println!("{:?}", &y[..5]);
}
