//! A member's part of a window as memory that this process reads and writes itself.

use samite_fabric::link::WorldRank;

use crate::core::check_span;
use crate::mapped::Mapped;
use crate::path::WORD;
use crate::window::Operation;
use crate::windows::check_action;
use crate::{Action, Error};

/// A member's part of a window in the memory of this process: see [`Windows::view`](crate::Windows::view). It needs no
/// epoch, so the members must agree on the order of their accesses.
#[derive(Debug)]
pub struct View {
    rank: WorldRank,
    /// `None` if the part is empty.
    memory: Option<Mapped>,
    len: u64,
    unit: u32,
}

impl View {
    pub(crate) fn new(rank: WorldRank, memory: Option<Mapped>, len: u64, unit: u32) -> Self {
        Self { rank, memory, len, unit }
    }

    /// Returns the number of bytes in the part.
    #[must_use]
    pub fn len(&self) -> usize {
        // A part that is mapped has fewer bytes than the memory of this process.
        self.len as usize
    }

    /// Returns true if the part has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of the part's displacement unit.
    #[must_use]
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// Puts bytes at offset `at`, and returns true, if they lie in the part and it is open; otherwise
    /// [`write`](Self::write) tells the reason. False also if there are no bytes. This is the shortest way to put.
    #[inline]
    #[must_use]
    pub fn put(&self, at: u64, data: &[u8]) -> bool {
        let Some(memory) = self.inside(at, data.len()) else { return false };
        memory.put(at as usize, data);
        true
    }

    /// Gets the bytes at offset `at` as [`put`](Self::put) puts them.
    #[inline]
    #[must_use]
    pub fn get(&self, at: u64, into: &mut [u8]) -> bool {
        let Some(memory) = self.inside(at, into.len()) else { return false };
        memory.get(at as usize, into);
        true
    }

    /// Returns the memory if the part is open and has these bytes, of which there are some.
    #[inline]
    fn inside(&self, at: u64, bytes: usize) -> Option<&Mapped> {
        let memory = self.memory.as_ref()?;
        let is_inside = bytes > 0 && at <= self.len && bytes as u64 <= self.len - at;
        if is_inside && memory.is_open() { Some(memory) } else { None }
    }

    /// Carries out an operation without a result on the bytes from offset `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Misaligned`], [`Error::WrongLength`], [`Error::Undefined`],
    /// [`Error::NotAWord`]; [`Error::NoSuchWindow`] if the member has freed the window without this process, because it
    /// has left the job or was declared failed.
    ///
    /// # Panics
    /// If the operation has a result.
    pub fn write(&self, at: u64, action: Action, data: &[u8]) -> Result<(), Error> {
        let place = self.place(at, action, data.len())?;
        if let Some((memory, at)) = place {
            memory.write(at, action, data, false);
        }
        Ok(())
    }

    /// Carries out an operation with a result. `bytes` has the operands, and gets the result as [`Action`] says.
    ///
    /// # Errors
    /// Returns the errors of [`View::write`].
    ///
    /// # Panics
    /// If the operation has no result.
    pub fn fetch(&self, at: u64, action: Action, bytes: &mut [u8]) -> Result<(), Error> {
        let place = self.place(at, action, bytes.len())?;
        if let Some((memory, at)) = place {
            memory.fetch(at, action, bytes, false);
        }
        Ok(())
    }

    /// Checks an operation, and returns the memory and its place there. Returns `None` if it concerns no bytes.
    fn place(&self, at: u64, action: Action, bytes: usize) -> Result<Option<(&Mapped, usize)>, Error> {
        let len = check_action(action, bytes)?;
        if let Some(element) = action.element().filter(|element| element.size() > WORD) {
            return Err(Error::NotAWord { element });
        }
        let at = check_span(self.rank, 1, self.len, &Operation::new(action, at, len))?;
        let Some(memory) = self.memory.as_ref().filter(|_| len > 0) else { return Ok(None) };
        if memory.is_open() { Ok(Some((memory, at as usize))) } else { Err(Error::NoSuchWindow) }
    }
}
