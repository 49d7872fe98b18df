//! The heap of another process, for reading.

use std::sync::atomic::{AtomicU64, Ordering};

use super::keys::{self, is_exposed, is_exposed_still};
use crate::PortError;
use crate::copy::copy_out;
use samite_os::process::Process;
use samite_os::shared::{SharedFile, View};

/// The part of a peer's arena that was in use when it was mapped. It is mapped for reading. The peer may have written
/// any value to any word, so the contents are checked and never trusted.
pub(crate) struct PeerHeap {
    file: SharedFile,
    /// The words from the start of the file on. They include at least the table of keys.
    words: View<AtomicU64>,
}

impl PeerHeap {
    /// Maps the heap that another process has open as descriptor `fd`.
    pub(crate) fn open(owner: Process, fd: u32) -> Result<Self, PortError> {
        let file = SharedFile::open_to_read(owner, fd)?;
        if file.size() < keys::BYTES {
            return Err(no_heap());
        }
        let words = map(&file, keys::BYTES)?;
        if words[keys::AT_VERSION].load(Ordering::Relaxed) != keys::VERSION {
            return Err(no_heap());
        }
        Ok(Self { file, words })
    }

    /// Copies bytes from `offset` on. Returns false if this key did not expose them during the whole copy: then the
    /// copied bytes are meaningless.
    pub(crate) fn read(&mut self, key: u64, offset: usize, into: &mut [u8]) -> Result<bool, PortError> {
        let Some(end) = offset.checked_add(into.len()) else { return Ok(false) };
        if !is_exposed(&self.words, key) || !self.reach(end)? {
            return Ok(false);
        }
        copy_out(&self.words, offset, into);
        Ok(is_exposed_still(&self.words, key))
    }

    /// Returns true if the first `end` bytes are mapped. If they are not mapped yet but are in use by now, maps the
    /// file again.
    #[inline]
    fn reach(&mut self, end: usize) -> Result<bool, PortError> {
        if end > size_of_val(&*self.words) {
            let in_use = self.words[keys::AT_LEN].load(Ordering::Relaxed);
            // The owner may have written any number here, so it is limited by the size of the file, which cannot
            // change.
            let in_use = usize::try_from(in_use).unwrap_or(usize::MAX).min(self.file.size());
            if end > in_use {
                return Ok(false);
            }
            self.words = map(&self.file, in_use)?;
        }
        Ok(end <= size_of_val(&*self.words))
    }
}

fn map(file: &SharedFile, len: usize) -> Result<View<AtomicU64>, PortError> {
    let mapping = file.map_to_read(0..len).map_err(|error| PortError::Unreachable {
        why: format!("the peer's heap cannot be mapped: {error}"),
    })?;
    mapping.leave_out_of_dumps();
    Ok(mapping.view(0, len / size_of::<AtomicU64>()))
}

#[cold]
fn no_heap() -> PortError {
    PortError::Unreachable { why: "the peer's descriptor is no heap of this version of samite".into() }
}
