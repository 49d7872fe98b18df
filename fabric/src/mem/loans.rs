//! Borrowed buffers that other threads of the process may use until a scope ends.
//!
//! A [`Lender`] puts borrowed buffers into a table of [`Loans`], each under a key. A thread that opens the table can
//! read and write the buffers. When the scope of the lender ends, by a return or by a panic, the lender removes its
//! buffers from the table. For that it waits until no thread has the table open. So no buffer is used after the end of
//! its borrow.
//!
//! A child made by fork(2) never opens a table of its parent: a thread that had the table open at the fork does not
//! exist in the child, and would never close it.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use samite_os::fork::ForkMark;

use crate::layout::{Readable, Writable};

/// A table of lent buffers, by key.
pub struct Loans {
    /// The lifetime `'static` replaces the lifetime of each buffer's borrow, which is shorter. Users of the table get a
    /// buffer only with the lifetime of the guard of this lock.
    table: Mutex<HashMap<u64, Loan>>,
    /// The number of buffers in the table.
    len: AtomicUsize,
    /// `None` if the kernel does not support such marks. The runtime does not start then.
    mark: Option<ForkMark>,
}

impl Default for Loans {
    fn default() -> Self {
        Self { table: Mutex::default(), len: AtomicUsize::new(0), mark: ForkMark::new().ok() }
    }
}

enum Loan {
    Read(Readable<'static>),
    Write(Writable<'static>),
}

/// An open table. No other thread can open it, and no lender can remove a buffer, until this value is dropped.
pub struct OpenLoans<'a>(MutexGuard<'a, HashMap<u64, Loan>>);

/// Lends buffers that are borrowed for `'env`: see [`Loans::scope`].
pub struct Lender<'a, 'env> {
    loans: &'a Loans,
    /// The keys under which this lender has put buffers into the table.
    keys: Mutex<Vec<u64>>,
    /// This makes `'env` invariant. With a shorter lifetime for `'env`, the lender would accept buffers whose borrow
    /// ends before the scope.
    env: PhantomData<fn(&'env ()) -> &'env ()>,
}

impl Loans {
    /// Runs `body` with a lender. When this function returns or panics, the buffers of the lender are out of the table.
    ///
    /// The compiler refuses a buffer whose borrow may end before that:
    ///
    /// ```compile_fail,E0597
    /// samite_fabric::mem::Loans::default().scope(|lender| {
    ///     let data = [1_u8];
    ///     lender.lend(1, (&data[..]).into());
    /// });
    /// ```
    /// It also refuses to return the lender from `body`:
    ///
    /// ```compile_fail
    /// let loans = samite_fabric::mem::Loans::default();
    /// let lender = loans.scope(|lender| lender);
    /// ```
    pub fn scope<'env, R>(&self, body: impl FnOnce(&Lender<'_, 'env>) -> R) -> R {
        // `body` gets a shared reference, so it cannot prevent the drop of the lender.
        body(&Lender { loans: self, keys: Mutex::default(), env: PhantomData })
    }

    /// Returns true if no buffer is lent. The result is exact if the caller holds a lock that the lenders hold too when
    /// they lend and remove buffers. Otherwise the result may not yet show a loan or its end.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Opens the table. Waits while another thread has it open.
    ///
    /// # Panics
    /// In a child made by fork(2) after the table was made.
    #[must_use]
    pub fn open(&self) -> OpenLoans<'_> {
        OpenLoans(self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Loan>> {
        assert!(!self.is_in_child(), "a child does not use the loans of its parent");
        // A panic between two changes of the table leaves it valid.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_in_child(&self) -> bool {
        self.mark.as_ref().is_some_and(ForkMark::is_in_child)
    }

    fn insert(&self, key: u64, loan: Loan) {
        let mut table = self.lock();
        table.insert(key, loan);
        self.len.store(table.len(), Ordering::Relaxed);
    }
}

impl OpenLoans<'_> {
    /// Returns true if a buffer is lent under this key.
    #[must_use]
    pub fn contains(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    /// Returns the data that is lent under this key, to be read.
    #[must_use]
    pub fn read(&self, key: u64) -> Option<Readable<'_>> {
        match self.0.get(&key)? {
            Loan::Read(data) => Some(*data),
            Loan::Write(_) => None,
        }
    }

    /// Returns the buffer that is lent under this key, to be written.
    #[must_use]
    pub fn write(&mut self, key: u64) -> Option<Writable<'_>> {
        match self.0.get_mut(&key)? {
            Loan::Write(buffer) => Some(buffer.reborrow()),
            Loan::Read(_) => None,
        }
    }
}

impl<'env> Lender<'_, 'env> {
    fn note(&self, key: u64) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
    }

    /// Lends data to be read, under a key. Removes a buffer that was lent under the same key before.
    pub fn lend(&self, key: u64, data: Readable<'env>) {
        self.note(key);
        // SAFETY: only the lifetime changes. The value is in the table at most until this lender is dropped, which
        // happens before `Loans::scope` returns or panics, and `'env` is longer than that call. Out of the table it is
        // copied only with the lifetime of a guard of the table's lock, and the drop needs that lock. In a child of
        // fork(2) the value stays in the table, but `lock` panics there, so it is never copied out of the table.
        let data = unsafe { transmute::<Readable<'env>, Readable<'static>>(data) };
        self.loans.insert(key, Loan::Read(data));
    }

    /// Lends a buffer to be written, as [`lend`](Self::lend) does.
    pub fn lend_mut(&self, key: u64, buffer: Writable<'env>) {
        self.note(key);
        // SAFETY: as in `lend`. The table has the only reference to the buffer, and `OpenLoans::write` lends it on only
        // for as long as it is itself borrowed mutably.
        let buffer = unsafe { transmute::<Writable<'env>, Writable<'static>>(buffer) };
        self.loans.insert(key, Loan::Write(buffer));
    }
}

impl Drop for Lender<'_, '_> {
    fn drop(&mut self) {
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner);
        // In a child the buffers stay in the table, because no call can open the table there.
        if keys.is_empty() || self.loans.is_in_child() {
            return;
        }
        let mut table = self.loans.lock();
        for key in keys {
            table.remove(key);
        }
        self.loans.len.store(table.len(), Ordering::Relaxed);
    }
}

impl fmt::Debug for Loans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loans").field("len", &self.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenLoans<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenLoans").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Lender<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lender").field("keys", &self.keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
