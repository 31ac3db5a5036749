//! What the writer writes, the reader reads.

use verbatim::gguf::{Array, Bytes, Gguf, Item, Kind, Metadata, Value, Version, Writer};
use verbatim::quant::Format;

use crate::fixtures::{NAME, TENSORS, data, file, metadata, read, small};

#[test]
fn every_kind_of_value_comes_back_as_written() {
    for version in [Version::V2, Version::V3] {
        let gguf = read(file(metadata(), version)).unwrap();
        assert_eq!(gguf.metadata(), &metadata());
    }
    let kinds: Vec<_> = metadata().iter().map(|(_, value)| value.item().kind()).collect();
    for number in 0..13 {
        let kind = Kind::from_number(number).unwrap();
        assert!(kinds.contains(&kind), "no value of kind {}", kind.name());
    }
}

#[test]
fn the_two_versions_differ_in_their_number_alone() {
    let (v2, v3) = (file(metadata(), Version::V2), small());
    assert_eq!((v2[4], v3[4]), (2, 3));
    assert_eq!(v2[5..], v3[5..]);
}

#[test]
fn values_are_read_as_what_they_are_and_nothing_else() {
    let gguf = read(small()).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.usize("scalar.u8").unwrap(), Some(200));
    assert_eq!(m.f32("scalar.f64").unwrap(), Some(-0.1));
    assert_eq!(m.bool("scalar.bool").unwrap(), Some(true));
    assert_eq!(m.str("scalar.string").unwrap(), Some("naïve \0 text"));
    assert_eq!(m.usize("absent").unwrap(), None);
    let numbers = m.array("array.i32").unwrap().unwrap();
    assert_eq!(numbers.iter().collect::<Vec<_>>(), [Item::I32(-7); 3]);
    let nested = m.array("array.nested").unwrap().unwrap();
    let inner = nested.get(1).and_then(Item::as_array).unwrap();
    assert_eq!(inner.get(2).and_then(Item::as_str), Some("ü"));
    assert_eq!(inner.get(3), None);
    let message = m.usize("scalar.string").unwrap_err().to_string();
    assert_eq!(message, "scalar.string: expected an unsigned integer, found string");
    let message = m.usize("scalar.i8").unwrap_err().to_string();
    assert_eq!(message, "scalar.i8: expected an unsigned integer, found i8");
}

#[test]
fn tensors_come_back_in_order_with_their_data() {
    let bytes = small();
    let size = bytes.len();
    let gguf = read(bytes).unwrap();
    assert_eq!(gguf.file_bytes(), size);
    assert_eq!((gguf.name().as_str(), gguf.path(), gguf.parts()), (NAME, None, 1));
    assert_eq!(gguf.tensors().len(), TENSORS.len());
    for (i, (tensor, (name, dims, format, bytes))) in gguf.tensors().zip(TENSORS).enumerate() {
        assert_eq!((tensor.name.as_str(), &*tensor.dims), (name, dims));
        assert_eq!((tensor.format, tensor.bytes(), tensor.format_name()), (Ok(format), Some(bytes), format.name()));
        assert_eq!(tensor.weights(), dims.iter().product::<usize>());
        assert_eq!(gguf.tensor(name), Some(tensor));
        assert_eq!(&*gguf.data(name).unwrap(), data(i));
    }
    assert_eq!(gguf.tensor("blk.1.norm.weight"), None);
    let message = gguf.data("blk.1.norm.weight").unwrap_err().to_string();
    assert_eq!(message, "some.gguf: blk.1.norm.weight: no such tensor in the file");
}

#[test]
fn data_is_used_where_it_lies() {
    let bytes: &'static [u8] = small().leak();
    let gguf = Gguf::from_static(bytes, NAME).unwrap();
    for (i, tensor) in gguf.tensors().enumerate() {
        let found = gguf.data(&tensor.name).unwrap();
        assert!(bytes.as_ptr_range().contains(&found.as_ptr()), "tensor {i} was copied");
        assert!(found.as_ptr().addr().is_multiple_of(8));
    }
}

#[test]
fn a_file_at_an_odd_address_has_aligned_data_too() {
    let bytes: &'static [u8] = [&[0; 3][..], &small()].concat().leak();
    let gguf = Gguf::from_static(&bytes[3..], NAME).unwrap();
    for (i, tensor) in gguf.tensors().enumerate() {
        let found: Bytes = gguf.data(&tensor.name).unwrap();
        assert!(found.as_ptr().addr().is_multiple_of(8));
        assert_eq!(&*found, data(i));
    }
}

#[test]
fn every_allowed_alignment_is_kept() {
    for alignment in [8u32, 16, 32, 64, 4096] {
        let mut metadata = metadata();
        metadata.insert("general.alignment", alignment.into());
        let bytes = file(metadata, Version::V3);
        assert!(bytes.len().is_multiple_of(alignment as usize));
        let gguf = read(bytes).unwrap();
        for (i, (name, ..)) in TENSORS.iter().enumerate() {
            assert_eq!(&*gguf.data(name).unwrap(), data(i), "alignment {alignment}");
        }
    }
}

#[test]
fn every_format_comes_back() {
    let mut writer = Writer::new(Metadata::default()).unwrap();
    let mut datas = Vec::new();
    for format in Format::all() {
        writer.tensor(format.name(), &[256, 3], format).unwrap();
        datas.push(vec![format as u8; format.row_bytes(256).unwrap() * 3]);
    }
    let datas_of: Vec<&[u8]> = datas.iter().map(Vec::as_slice).collect();
    let gguf = read(writer.into_vec(&datas_of).unwrap()).unwrap();
    for (format, data) in Format::all().zip(&datas) {
        assert_eq!(gguf.tensor(format.name()).unwrap().format, Ok(format));
        assert_eq!(&*gguf.data(format.name()).unwrap(), data.as_slice());
    }
}

#[test]
fn a_file_of_nothing_but_a_header_is_a_file() {
    let gguf = read(Writer::new(Metadata::default()).unwrap().into_vec(&[]).unwrap()).unwrap();
    assert_eq!((gguf.tensors().len(), gguf.metadata().iter().count()), (0, 0));
}

#[test]
fn tensors_are_streamed_in_the_order_announced() {
    let mut writer = Writer::new(metadata()).unwrap();
    for (name, dims, format, _) in TENSORS {
        writer.tensor(name, dims, format).unwrap();
    }
    let mut stream = writer.start(Vec::new()).unwrap();
    for (i, (name, ..)) in TENSORS.iter().enumerate() {
        assert_eq!(stream.due(), Some(*name));
        stream.tensor(&data(i)).unwrap();
    }
    assert_eq!(stream.due(), None);
    assert_eq!(stream.finish().unwrap(), small());
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let said = |result: verbatim::Result<()>| result.unwrap_err().to_string();
    let mut writer = Writer::new(Metadata::default()).unwrap();
    assert!(said(writer.tensor("t", &[], Format::F32)).starts_with("t: expected 1 to 4 dimensions, found 0"));
    assert!(said(writer.tensor("t", &[1; 5], Format::F32)).contains("found 5"));
    assert!(said(writer.tensor("t", &[4, 0], Format::F32)).contains("positive"));
    assert!(said(writer.tensor("t", &[33], Format::Q8_0)).contains("multiple of 32"));
    assert!(said(writer.tensor("t", &[usize::MAX, 2], Format::F32)).contains("count"));
    writer.tensor("t", &[8], Format::F32).unwrap();
    assert!(said(writer.tensor("t", &[8], Format::F32)).contains("twice"));
    let mut stream = writer.start(Vec::new()).unwrap();
    assert!(said(stream.tensor(&[0; 31])).starts_with("t: expected 32 bytes of data, found 31"));

    let mut writer = Writer::new(Metadata::default()).unwrap();
    writer.tensor("t", &[8], Format::F32).unwrap();
    let message = writer.start(Vec::new()).unwrap().finish().unwrap_err().to_string();
    assert!(message.starts_with("t: "), "{message}");

    let mut metadata = Metadata::default();
    metadata.insert("general.alignment", Value::U32(24));
    assert!(Writer::new(metadata).is_err());
}

#[test]
fn the_fingerprint_tells_models_apart_and_not_layouts() {
    let whole = read(small()).unwrap().fingerprint();
    assert_eq!(read(file(metadata(), Version::V2)).unwrap().fingerprint(), whole);
    let with = |key: &str, value: Value| {
        let mut metadata = metadata();
        metadata.insert(key, value);
        read(file(metadata, Version::V3)).unwrap().fingerprint()
    };
    assert_eq!(with("general.alignment", 64u32.into()), whole);
    assert_ne!(with("scalar.u8", 201u8.into()), whole);
    assert_ne!(with("scalar.u8", 200u16.into()), whole);
    assert_ne!(with("array.string", Array::strings(["o", "nethree", ""]).into()), whole);
    let data_start = small().len() - (32 + 128 + 576 + 32);
    for (at, name) in [(0, "the first byte"), (19, "a tensor's last"), (32 + 128 + 575, "another's last")] {
        let mut bytes = small();
        bytes[data_start + at] ^= 1;
        assert_ne!(read(bytes).unwrap().fingerprint(), whole, "{name}");
    }
    let mut bytes = small();
    bytes[data_start + 20] ^= 1;
    assert_eq!(read(bytes).unwrap().fingerprint(), whole, "padding is no data");
}
