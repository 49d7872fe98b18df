//! The memory of a matcher, by purpose.

/// Memory of a [`Matcher`](crate::Matcher), in bytes.
///
/// "In use" counts queued entries and the objects that order them, as in (Zounmevo 2014). "Reserved" is the
/// memory obtained from the allocator, which pools keep for reuse. The payloads' own heap memory is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Entries of posted receives in use, payload included.
    pub posted: usize,
    /// Entries of unexpected messages in use, payload included.
    pub unexpected: usize,
    /// The structure's own objects in use.
    pub structure: usize,
    /// The largest [`in_use`](Self::in_use) since the matcher was made.
    pub peak: usize,
    /// Bytes obtained from the allocator, for entries and structure.
    pub reserved: usize,
}

impl Memory {
    /// Returns the bytes in use by entries and structure. [`Config::bytes_max`](crate::Config) limits this sum.
    pub const fn in_use(&self) -> usize {
        self.posted + self.unexpected + self.structure
    }
}
