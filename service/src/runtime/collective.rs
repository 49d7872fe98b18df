//! The execution of a collective operation: the runtime begins it, and waits for its end.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use samite_coll::{Buffers, Call, Collective, Failed, Plan};
use samite_fabric::Port;
use samite_fabric::layout::{Readable, Writable};
use samite_p2p::{Engine, Fate, Group, Lent, RequestId, Status};

use super::{Bounds, Runtime};
use crate::cancel::CancelToken;
use crate::comm::Derived;
use crate::error::{Error, Public};
use crate::request::Awaiting;

/// The collective operations of a communicator on one lane. The members of the communicator begin these operations in
/// the same order, so each operation has the same number at all members. The lane's lock protects the value. The types
/// are atomic only because the callers have a shared reference.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    next: AtomicU32,
    /// True if an operation has failed at this rank since the latest operation began. Then messages of the failed
    /// operation may have arrived that no operation will receive.
    has_failed: AtomicBool,
}

/// A collective operation, without the values of [`Call`] that the runtime adds.
pub(crate) struct Operation<'a> {
    pub(crate) plan: Plan,
    pub(crate) group: Group,
    /// The control context of the communicator.
    pub(crate) context: u32,
    /// The size of an element in bytes.
    pub(crate) element: usize,
    pub(crate) buffers: Buffers<'a>,
}

impl<P: Port> Runtime<P> {
    /// Carries out a collective operation on a communicator, or on the world's communicator if `derived` is `None`.
    ///
    /// # Panics
    /// If the reduction panics, with the same payload.
    pub(crate) fn collective(
        &self,
        derived: Option<&Derived>,
        operation: Operation<'_>,
        bounds: &Bounds,
    ) -> Result<(), Error> {
        let Some(mut core) = self.core.enter() else { return Err(self.refused()) };
        let deadline = self.deadline(&mut core, bounds);
        let counter = derived.map_or(&self.counter, |derived| derived.counter(core.lane));
        let number = counter.next.fetch_add(1, Ordering::Relaxed);
        let Operation { plan, group, context, element, buffers } = operation;
        if counter.has_failed.swap(false, Ordering::Relaxed) {
            Collective::discard_before(&mut core.engine, context, number);
        }
        let call = Call { plan, group, context, number, element, deadline };
        let now = core.now;
        let mut collective = Collective::begin(&mut core.engine, now, call, self.rank, buffers);
        self.hand_over(&mut core);
        let mut unfinished = None;
        if collective.has_ended() {
            drop(core);
        } else {
            let awaited = collective.awaited();
            let mut running = Running { collective: &mut collective, cancel: bounds.cancel.as_ref() };
            let end = self.wait(core, awaited, &mut running, bounds);
            // The wait ends with an error of its own if the port fails, or if this rank's part in the job ends.
            unfinished = end.and_then(|end| end.result.err());
        }
        let failed = match (collective.take_result(), unfinished) {
            (Some(Ok(())), _) => return Ok(()),
            (Some(Err(Failed::Error(error))), _) => self.explain(error.public(), bounds),
            (Some(Err(Failed::Panicked(payload))), _) => {
                counter.has_failed.store(true, Ordering::Relaxed);
                resume_unwind(payload);
            }
            (None, unfinished) => {
                self.quit_collective(&mut collective);
                unfinished.unwrap_or(Error::Closed { fate: crate::Fate::Unknown })
            }
        };
        counter.has_failed.store(true, Ordering::Relaxed);
        Err(failed)
    }

    /// Gives up an operation whose wait has ended with an error of the runtime.
    #[cold]
    fn quit_collective(&self, collective: &mut Collective<'_>) {
        let Ok(mut core) = self.lock() else { return };
        match core.condemned {
            None => collective.quit(&mut core.engine, samite_p2p::Error::Cancelled { fate: Fate::Unknown }),
            // The other ranks consider this rank failed, so it sends nothing. It only ends the access of other ranks to
            // the buffers.
            Some(_) => core.engine.conceal(),
        }
    }
}

/// A collective operation for whose end a thread waits.
struct Running<'a, 'b> {
    collective: &'a mut Collective<'b>,
    cancel: Option<&'a CancelToken>,
}

impl Lent for Running<'_, '_> {
    #[inline]
    fn read(&self, request: RequestId, place: u32) -> Option<Readable<'_>> {
        self.collective.read(request, place)
    }
    #[inline]
    fn write(&mut self, request: RequestId, place: u32) -> Option<Writable<'_>> {
        self.collective.write(request, place)
    }
    #[inline]
    fn received(&mut self, request: RequestId, place: u32, status: Status) -> bool {
        self.collective.received(request, place, status)
    }
}

impl Awaiting for Running<'_, '_> {
    /// Takes the next steps, and returns the request to wait for. It returns [`RequestId::NONE`] when the operation has
    /// ended, which ends the wait.
    fn first<P: Port>(&mut self, engine: &mut Engine<P>) -> Option<RequestId> {
        self.collective.advance(engine);
        Some(self.collective.awaited())
    }

    fn heed_cancels<P: Port>(&mut self, engine: &mut Engine<P>) -> bool {
        if self.cancel.is_some_and(CancelToken::is_cancelled) {
            self.collective.quit(engine, samite_p2p::Error::Cancelled { fate: Fate::Unknown });
        }
        self.collective.attend(engine)
    }
}
