//! Type signatures of messages, to detect that a message is received as another type than it was sent as.

use std::sync::Arc;

/// A digest of a type signature: of the types of a message's elements in their order, without their places in memory
/// and without their number (MPI 4.1, sections 3.3.1 and 5.1). So the digest of four numbers is that of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature([u8; 6]);

impl Signature {
    /// The signature of bytes without a type, which agree with every type. A message whose types are not known has it
    /// too.
    pub const BYTES: Self = Self([0; 6]);

    /// Returns the signature with this digest.
    #[must_use]
    pub const fn from_digest(digest: [u8; 6]) -> Self {
        Self(digest)
    }

    /// Returns the digest.
    #[must_use]
    pub const fn digest(self) -> [u8; 6] {
        self.0
    }

    /// Returns the signature of elements of one type that has no parts, or whose parts are not known.
    #[must_use]
    pub fn of_type(name: &str, size: usize) -> Self {
        Self::of_bytes(name.bytes().chain((size as u64).to_le_bytes()))
    }

    /// Returns the signature of a sequence of parts, each with a number of bytes.
    #[must_use]
    pub fn of_sequence(parts: impl IntoIterator<Item = (Self, usize)>) -> Self {
        let mut runs: Vec<(Self, usize)> = Vec::new();
        for (part, bytes) in parts.into_iter().filter(|(_, bytes)| *bytes > 0) {
            match runs.last_mut() {
                Some((last, sum)) if *last == part => *sum += bytes,
                _ => runs.push((part, bytes)),
            }
        }
        match *period(&runs) {
            [] => Self::BYTES,
            [(part, _)] => part,
            ref runs => {
                let words = runs.iter().map(|(part, bytes)| (part.0, (*bytes as u64).to_le_bytes()));
                Self::of_bytes(words.flat_map(|(part, bytes)| part.into_iter().chain(bytes)))
            }
        }
    }

    /// Returns true if a message of this signature may be received as elements of the other one.
    #[must_use]
    pub fn agrees_with(self, other: Self) -> bool {
        self == other || self == Self::BYTES || other == Self::BYTES
    }

    /// Returns the digest of some bytes: the hash FNV-1a of 64 bits, folded to 48.
    fn of_bytes(bytes: impl Iterator<Item = u8>) -> Self {
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let [a, b, c, d, e, f, g, h] = hash.to_le_bytes();
        match Self([a ^ g, b ^ h, c, d, e, f]) {
            Self::BYTES => Self([1; 6]),
            other => other,
        }
    }
}

/// Returns the shortest beginning of a list of which the whole list is a repetition.
fn period<T: PartialEq>(list: &[T]) -> &[T] {
    let is_period = |len: &usize| list.chunks(*len).all(|chunk| *chunk == list[..*len]);
    let len = (1..list.len()).find(is_period);
    &list[..len.unwrap_or(list.len())]
}

/// The types of a message's elements. The signature is computed only when it is needed.
#[derive(Clone, Debug)]
pub enum Elements {
    /// Elements of one type. The function returns their signature.
    Type(fn() -> Signature),
    /// A sequence of parts, each with a number of bytes.
    Sequence(Arc<[(Elements, usize)]>),
}

impl Elements {
    /// Bytes without a type.
    pub const BYTES: Self = Self::Type(|| Signature::BYTES);

    /// Returns the signature.
    #[must_use]
    pub fn signature(&self) -> Signature {
        match self {
            Self::Type(signature) => signature(),
            Self::Sequence(parts) => {
                Signature::of_sequence(parts.iter().map(|(part, bytes)| (part.signature(), *bytes)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float() -> Signature {
        Signature::of_type("f32", 4)
    }

    fn short() -> Signature {
        Signature::of_type("u16", 2)
    }

    #[test]
    fn a_sequence_counts_what_is_within_an_element_and_not_the_elements() {
        let sequence = |parts: &[(Signature, usize)]| Signature::of_sequence(parts.iter().copied());
        let place = sequence(&[(float(), 12), (short(), 2)]);
        assert_eq!(sequence(&[(float(), 12)]), float());
        assert_eq!(sequence(&[(float(), 4), (float(), 8), (short(), 2), (short(), 0)]), place);
        assert_eq!(sequence(&[(float(), 12), (short(), 2), (float(), 12), (short(), 2)]), place);
        let others = [
            float(),
            short(),
            sequence(&[(float(), 8), (short(), 2)]),
            sequence(&[(short(), 2), (float(), 12)]),
            sequence(&[(float(), 12), (short(), 2), (float(), 12)]),
            sequence(&[(float(), 12), (Signature::BYTES, 2)]),
        ];
        assert!(others.iter().all(|other| !other.agrees_with(place)));
        assert_eq!(sequence(&[]), Signature::BYTES);
        assert_eq!(sequence(&[(Signature::BYTES, 3), (Signature::BYTES, 4)]), Signature::BYTES);
    }

    #[test]
    fn bytes_agree_with_every_type() {
        assert!(Signature::BYTES.agrees_with(float()) && float().agrees_with(Signature::BYTES));
        assert!(float().agrees_with(float()) && !float().agrees_with(short()));
        assert_ne!(Signature::of_type("Place", 4), Signature::of_type("Place", 8));
        assert_eq!(Signature::from_digest(float().digest()), float());
    }

    #[test]
    fn elements_have_a_signature_when_it_is_needed() {
        let parts: Arc<[_]> = Arc::new([(Elements::Type(float), 12), (Elements::Type(short), 2)]);
        let sequence = Signature::of_sequence([(float(), 12), (short(), 2)]);
        assert_eq!(Elements::Sequence(parts).signature(), sequence);
        assert_eq!(Elements::Type(short).signature(), short());
    }
}
