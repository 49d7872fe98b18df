//! The decoders of this crate that fuzz targets reach. Built with `--cfg fuzzing` only.

use crate::bootstrap::{Entry, read_pmi};

/// Reads a line as an answer of a PMI server, and as the entry that a rank publishes in a launcher's key-value space.
pub fn launcher(line: &[u8]) {
    read_pmi(line);
    if let Ok(entry) = str::from_utf8(line).unwrap_or_default().parse::<Entry>() {
        assert_eq!(entry.to_string().parse::<Entry>().expect("it was just written"), entry);
    }
}

/// Decodes bytes of a message as values of several types, with a limit on elements.
#[cfg(feature = "serde")]
pub fn value(bytes: &[u8]) {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize, de::DeserializeOwned};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Part {
        Nothing,
        Number(i128),
        Pair(char, Box<Part>),
        Named { name: Option<String>, parts: Vec<Part> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Chain(Option<Box<Chain>>);

    /// A value of this type takes no bytes in the message.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Hidden {
        #[serde(skip)]
        numbers: [u64; 4],
    }

    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        const MAX: usize = 1000;
        if let Ok(value) = crate::value::decode::decode::<T>(bytes, MAX) {
            let encoded = postcard::to_allocvec(&value).expect("it was decoded");
            // The new encoding may be shorter, because the numbers in `bytes` may have superfluous zeros.
            assert!(encoded.len() <= bytes.len());
            let again = crate::value::decode::decode::<T>(&encoded, MAX).expect("it was just encoded");
            assert_eq!(again, value);
        }
    }

    check::<Part>(bytes);
    check::<Chain>(bytes);
    check::<Vec<Hidden>>(bytes);
    check::<BTreeMap<u16, Vec<()>>>(bytes);
    check::<(Vec<(bool, i64)>, BTreeMap<String, [u32; 2]>)>(bytes);
}
