//! The type signatures of operations, in programs that check types (MPI 4.1, section 3.3.1).
//!
//! A send with a signature sends the signature with its message. When the message is matched with a receive that has a
//! signature too, the two are compared. In programs that check no types, no operation has a signature, and this list is
//! empty.

use std::collections::BTreeMap;

use samite_fabric::layout::Signature;
use samite_fabric::link::{Error, RequestId, Slots, Status};

use crate::request::Request;

/// The type signature of an operation's elements, and the call that has started the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typed {
    /// The signature.
    pub signature: Signature,
    /// The name of the call, for the error if the types differ.
    pub call: &'static str,
}

impl Typed {
    /// Returns the error of a receive of these types if the types of its message differ. A message without bytes has no
    /// elements, so it agrees with every receive.
    pub(crate) fn conflict(self, status: Status, sent: Signature) -> Option<Error> {
        let Self { signature: expected, call } = self;
        let agrees = status.bytes == 0 || sent.agrees_with(expected);
        (!agrees).then_some(Error::TypesDiffer { status, call, sent, expected })
    }
}

/// The operations that have a signature.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    /// The signatures by request. Some of these requests may have ended.
    typed: BTreeMap<RequestId, Typed>,
    /// The number of entries at which the entries of ended requests are removed.
    sweep_at: usize,
}

impl Signatures {
    /// Notes the signature of an operation.
    pub(crate) fn insert(&mut self, id: RequestId, typed: Typed, requests: &Slots<Request>) {
        if self.typed.len() >= self.sweep_at {
            self.typed.retain(|id, _| requests.get(*id).is_some());
            self.sweep_at = (2 * self.typed.len()).max(SWEEP_MIN);
        }
        self.typed.insert(id, typed);
    }

    pub(crate) fn remove(&mut self, id: RequestId) {
        self.typed.remove(&id);
    }

    /// Returns the signature of an operation.
    #[inline]
    pub(crate) fn of(&self, id: RequestId) -> Signature {
        if self.typed.is_empty() {
            return Signature::BYTES;
        }
        self.typed.get(&id).map_or(Signature::BYTES, |typed| typed.signature)
    }

    /// Returns the error of a receive if it has matched a message of other types.
    #[inline]
    pub(crate) fn conflict(&self, id: RequestId, status: Status, sent: Signature) -> Option<Error> {
        if sent == Signature::BYTES { None } else { self.compare(id, status, sent) }
    }

    #[cold]
    fn compare(&self, id: RequestId, status: Status, sent: Signature) -> Option<Error> {
        self.typed.get(&id)?.conflict(status, sent)
    }
}

/// The smallest number of entries at which the entries of ended requests are removed.
const SWEEP_MIN: usize = 64;
