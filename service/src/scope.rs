//! Requests that borrow their buffers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use samite_fabric::mem::Element;
use samite_p2p::{Error, Lent, Received, RequestId, Sent, Status};
use zerocopy::IntoBytes;

use crate::Comm;
use crate::select::{Source, Tag};

/// Sends and receives under way together, with buffers borrowed for `'env`. Made by [`Comm::scope`].
///
/// The buffers stay with the scope, which lends them to the engine while it waits: bytes move into and out of
/// them in [`wait`](Self::wait), [`test`](Self::test) and at the end of the scope.
#[derive(Debug)]
pub struct Scope<'env> {
    comm: Comm,
    loans: Loans<'env>,
}

/// One operation of a scope.
#[derive(Debug)]
pub struct Pending(Kind);

#[derive(Debug)]
enum Kind {
    Ended(Status),
    UnderWay(RequestId),
}

#[derive(Debug, Default)]
struct Loans<'env>(HashMap<RequestId, Loan<'env>, BuildHasherDefault<RequestHasher>>);

#[derive(Debug)]
enum Loan<'env> {
    Send(&'env [u8]),
    Receive(&'env mut [u8]),
}

impl Lent for Loans<'_> {
    fn read(&self, request: RequestId) -> Option<&[u8]> {
        match self.0.get(&request)? {
            Loan::Send(bytes) => Some(bytes),
            Loan::Receive(_) => None,
        }
    }
    fn write(&mut self, request: RequestId) -> Option<&mut [u8]> {
        match self.0.get_mut(&request)? {
            Loan::Send(_) => None,
            Loan::Receive(bytes) => Some(bytes),
        }
    }
}

impl<'env> Scope<'env> {
    pub(crate) fn new(comm: Comm) -> Self {
        Self { comm, loans: Loans::default() }
    }

    /// Begins to send borrowed `data`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`].
    pub fn isend<T: Element>(&mut self, data: &'env [T], to: u32, tag: u64) -> Result<Pending, Error> {
        let data = data.as_bytes();
        let Comm { runtime, context, bounds } = &self.comm;
        let sent = runtime.start(bounds, |engine, now_ns, deadline_ns| {
            engine.send(now_ns, to, *context, tag, data, deadline_ns)
        })?;
        Ok(match sent {
            Sent::Now => Pending(Kind::Ended(Status { source: to, tag, bytes: data.len() })),
            Sent::Pending(id) => self.under_way(id, Loan::Send(data)),
        })
    }

    /// Begins to receive to a borrowed `buffer`.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::PeerFailed`], [`Error::Truncated`] if the message is there already.
    pub fn irecv<T: Element>(
        &mut self,
        buffer: &'env mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pending, Error> {
        let buffer = buffer.as_mut_bytes();
        let pattern = self.comm.pattern(from.into(), tag.into());
        let received = self.comm.runtime.start(&self.comm.bounds, |engine, now_ns, deadline_ns| {
            engine.recv(now_ns, pattern, buffer, deadline_ns)
        })?;
        Ok(match received {
            Received::Now(status) => Pending(Kind::Ended(status)),
            Received::Pending(id) => self.under_way(id, Loan::Receive(buffer)),
        })
    }

    /// Waits for an operation to end.
    ///
    /// # Errors
    /// As the operation.
    pub fn wait(&mut self, operation: Pending) -> Result<Status, Error> {
        match operation.0 {
            Kind::Ended(status) => Ok(status),
            Kind::UnderWay(id) => {
                let result = self.comm.runtime.finish(id, &mut self.loans, &self.comm.bounds).result;
                self.loans.0.remove(&id);
                result
            }
        }
    }

    /// Makes progress, and tells whether an operation has ended: if so, how; if not, it is given back.
    ///
    /// # Errors
    /// As the operation.
    pub fn test(&mut self, operation: Pending) -> Result<Result<Status, Pending>, Error> {
        let Kind::UnderWay(id) = operation.0 else { return self.wait(operation).map(Ok) };
        match self.comm.runtime.test(id, &mut self.loans)? {
            None => Ok(Err(operation)),
            Some(completion) => {
                self.loans.0.remove(&id);
                completion.result.map(Ok)
            }
        }
    }

    /// Asks for the end of an operation; [`wait`](Self::wait) tells how it ended.
    pub fn cancel(&mut self, operation: &Pending) {
        if let Kind::UnderWay(id) = operation.0 {
            self.comm.runtime.start(&self.comm.bounds, |engine, _, _| engine.cancel(id));
        }
    }

    pub(crate) fn wait_all(&mut self) -> Result<(), Error> {
        let mut ids: Vec<RequestId> = self.loans.0.keys().copied().collect();
        ids.sort_unstable();
        let ended = self.comm.runtime.finish_all(&ids, &mut self.loans, &self.comm.bounds);
        self.loans.0.clear();
        ended
    }

    fn under_way(&mut self, id: RequestId, loan: Loan<'env>) -> Pending {
        self.loans.0.insert(id, loan);
        Pending(Kind::UnderWay(id))
    }
}

/// After a panic in the scope's body: what is under way is cancelled, or ends with nobody to see it.
impl Drop for Scope<'_> {
    fn drop(&mut self) {
        for id in self.loans.0.keys().copied().collect::<Vec<_>>() {
            self.comm.runtime.start(&self.comm.bounds, |engine, _, _| engine.forget(id));
        }
    }
}

/// Hashes a request's name by one multiplication: names are the engine's own, and not chosen by an adversary.
#[derive(Default)]
struct RequestHasher(u64);

impl Hasher for RequestHasher {
    #[inline]
    fn write_u64(&mut self, name: u64) {
        // The golden ratio in 64 bits: Fibonacci hashing (Knuth, vol. 3, section 6.4). The best bits are the
        // upper ones, the table takes the lower.
        self.0 = (self.0 ^ name).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
