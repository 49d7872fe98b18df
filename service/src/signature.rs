//! The types of a message's elements, for the check `types` ([`Check::Types`](crate::Check::Types)).
//!
//! A program can learn only the name and the size of a type parameter, and not its fields. So numbers, and arrays of
//! them, are compared as numbers; a struct is compared by its name.

use std::any::type_name;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use samite_fabric::Memory;
use samite_fabric::layout::{Elements, Signature};

/// The elements of a call's message or buffer.
pub(crate) trait ElementType: Copy {
    /// Returns the number of bytes of which the length of a received message must be a multiple.
    fn bytes(self) -> usize;
    fn signature(self) -> Signature;
}

/// Elements of the type `T`.
pub(crate) struct Of<T>(PhantomData<fn() -> T>);

impl<T> Of<T> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Clone for Of<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Of<T> {}

impl<T> ElementType for Of<T> {
    #[inline(always)]
    fn bytes(self) -> usize {
        size_of::<T>()
    }

    fn signature(self) -> Signature {
        signature_of::<T>()
    }
}

/// The elements of a view: the number of bytes of which the length of a received message must be a multiple, and the
/// types.
#[derive(Clone, Copy)]
pub(crate) struct InLayout<'a>(pub(crate) usize, pub(crate) &'a Elements);

impl ElementType for InLayout<'_> {
    #[inline(always)]
    fn bytes(self) -> usize {
        self.0
    }

    fn signature(self) -> Signature {
        signature_in(self.1)
    }
}

/// Returns the signature of elements of one type.
#[cold]
pub(crate) fn signature_of<T>() -> Signature {
    let (name, size) = basic(type_name::<T>(), size_of::<T>());
    if name == "u8" {
        return Signature::BYTES;
    }
    named(Signature::of_type(&name, size), || name)
}

/// Returns the signature of the elements of a layout.
#[cold]
pub(crate) fn signature_in(elements: &Elements) -> Signature {
    match elements {
        Elements::Type(signature) => signature(),
        Elements::Sequence(parts) => {
            let parts: Vec<_> = parts.iter().map(|(part, bytes)| (signature_in(part), *bytes)).collect();
            named(Signature::of_sequence(parts.iter().copied()), || {
                let names = parts.iter().map(|(part, bytes)| format!("{bytes} bytes of {}", name_of(*part)));
                format!("({})", names.collect::<Vec<_>>().join(", "))
            })
        }
    }
}

/// Returns the signature of the elements of a buffer whose type is known only at run time.
#[cold]
pub(crate) fn signature_at_run_time(memory: &Memory) -> Signature {
    memory.elements().map_or(Signature::BYTES, signature_in)
}

/// Returns the signature of values that serde has serialized. It is the same for all types: one type may be sent and
/// another received, for example `&str` and `String`, and the receiver finds out by decoding if the bytes are a value
/// of its type.
#[cfg(feature = "serde")]
#[cold]
pub(crate) fn signature_of_values() -> Signature {
    named(Signature::of_type(VALUES, 0), || VALUES.to_owned())
}

#[cfg(feature = "serde")]
const VALUES: &str = "a serialized value";

/// Returns the name and the size by which a type is compared: for an array the name and the size of its elements, for a
/// number with the size of a pointer the name of the number with this size.
fn basic(name: &str, size: usize) -> (String, usize) {
    let array = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some((element, len)) = array.and_then(|inner| inner.rsplit_once("; "))
        && let Ok(len) = len.parse::<usize>()
    {
        return basic(element, size / len.max(1));
    }
    match name {
        "usize" => (format!("u{}", 8 * size), size),
        "isize" => (format!("i{}", 8 * size), size),
        name => (name.to_owned(), size),
    }
}

/// The names of the signatures that this process has computed. A name is needed when a message has an unexpected type.
static NAMES: Mutex<BTreeMap<Signature, String>> = Mutex::new(BTreeMap::new());

/// The types that have no parts.
const BASIC: [(&str, usize); 14] = [
    ("i8", 1),
    ("u16", 2),
    ("i16", 2),
    ("u32", 4),
    ("i32", 4),
    ("u64", 8),
    ("i64", 8),
    ("u128", 16),
    ("i128", 16),
    ("f32", 4),
    ("f64", 8),
    ("bool", 1),
    ("char", 4),
    ("()", 0),
];

/// Notes the name of a signature, and returns the signature.
fn named(signature: Signature, name: impl FnOnce() -> String) -> Signature {
    let known = NAMES.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&signature);
    if !known && signature != Signature::BYTES {
        let name = name();
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).insert(signature, name);
    }
    signature
}

/// Returns the name of a signature, or its digest if this process does not use such elements itself.
pub(crate) fn name_of(signature: Signature) -> String {
    if signature == Signature::BYTES {
        return "u8".to_owned();
    }
    if let Some((name, _)) = BASIC.iter().find(|(name, size)| Signature::of_type(name, *size) == signature) {
        return (*name).to_owned();
    }
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.get(&signature).cloned().unwrap_or_else(|| {
        let digest: String = signature.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("a type that this rank does not use, with the digest {digest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_their_elements_and_bytes_agree_with_all() {
        assert_eq!(signature_of::<[[f32; 4]; 3]>(), signature_of::<f32>());
        assert_eq!(signature_of::<usize>(), signature_of::<u64>());
        assert_eq!((signature_of::<[u8; 7]>(), signature_of::<u8>()), (Signature::BYTES, Signature::BYTES));
        let all = [
            signature_of::<u32>(),
            signature_of::<i32>(),
            signature_of::<f32>(),
            signature_of::<char>(),
            signature_of::<Pair<u32>>(),
            signature_of::<Pair<[u32; 1]>>(),
        ];
        assert!((0..all.len()).all(|i| !all[..i].contains(&all[i])), "{all:?}");
    }

    #[test]
    fn known_types_have_names() {
        assert_eq!(name_of(Signature::of_type("f64", 8)), "f64");
        assert_eq!(name_of(signature_of::<[i128; 2]>()), "i128");
        assert!(name_of(signature_of::<Pair<u16>>()).ends_with("tests::Pair<u16>"));
        let unknown = name_of(Signature::from_digest([0, 1, 2, 3, 0xfe, 0xff]));
        assert_eq!(unknown, "a type that this rank does not use, with the digest 00010203feff");
        let parts = [(Elements::Type(signature_of::<f32>), 12), (Elements::Type(signature_of::<u16>), 2)];
        let sequence = signature_in(&Elements::Sequence(parts.into()));
        assert_eq!(name_of(sequence), "(12 bytes of f32, 2 bytes of u16)");
    }

    struct Pair<T>(T);
}
