//! Any bytes as a GGUF file: an error or a model, and a model that is written again is the same model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use verbatim::gguf::{Gguf, Writer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::from_vec(bytes.to_vec(), "fuzzed") else {
        return;
    };
    let fingerprint = gguf.fingerprint();
    // The layout is the writer's own: an absurd alignment would only make a large file.
    let mut metadata = gguf.metadata().clone();
    metadata.remove("general.alignment");
    let mut writer = Writer::new(metadata).expect("the default alignment is allowed");
    let mut data = Vec::new();
    for tensor in gguf.tensors() {
        match (tensor.format, gguf.data(&tensor.name)) {
            (Ok(format), Ok(bytes)) => {
                writer
                    .tensor(&tensor.name, &tensor.dims, format)
                    .expect("what was read can be written");
                data.push(bytes);
            }
            (Err(_), Err(_)) => return,
            (_, data) => panic!("{tensor:?}: {data:?}"),
        }
    }
    let data: Vec<&[u8]> = data.iter().map(|bytes| bytes.as_slice()).collect();
    let written = writer.into_vec(&data).expect("the data have the sizes announced");
    let again = Gguf::from_vec(written, "written again").expect("what is written can be read");
    assert_eq!(again.fingerprint(), fingerprint);
});
