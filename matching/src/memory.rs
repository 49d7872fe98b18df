//! What a matcher's memory is used for.

/// Memory of a [`Matcher`](crate::Matcher), in bytes.
///
/// "In use" counts the objects that are in a queue or order one, as the published figures do; "reserved" is what
/// was taken from the allocator, which pools keep for reuse. The payloads' own heap memory is not seen.
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
    /// Bytes held from the allocator, for entries and structure.
    pub reserved: usize,
}

impl Memory {
    /// Bytes in use: entries and structure. This is what [`Config::bytes_max`](crate::Config) limits.
    pub const fn in_use(&self) -> usize {
        self.posted + self.unexpected + self.structure
    }
}
