//! The decoders of this crate that fuzz targets reach. Built with `--cfg fuzzing` only.

use crate::bootstrap::{Entry, read_pmi};

/// Reads a line as an answer of a PMI server, and as the entry that a rank publishes in a launcher's key-value space.
pub fn launcher(line: &[u8]) {
    read_pmi(line);
    if let Ok(entry) = str::from_utf8(line).unwrap_or_default().parse::<Entry>() {
        assert_eq!(entry.to_string().parse::<Entry>().expect("it was just written"), entry);
    }
}
