//! Calls on windows, and the requests of their operations and epochs.
//!
//! Each request of the windows that the program gets has a request of the engine beside it (see
//! [`Engine::begin_composite`]). So waits, futures, sets, callbacks, cancels and the progress between calls treat it as
//! they treat any other request.

use std::collections::HashMap;
use std::time::Duration;

use samite_fabric::link::Out;
use samite_fabric::{Memory, Port};
use samite_p2p::{Fate, RequestId, Time};
use samite_rma::{Completion, Windows};
use slab::Slab;

use super::background::CallKind;
use super::state::Core;
use super::{Bounds, Runtime};
use crate::comm::Derived;
use crate::error::{Error, Public};
use crate::stack::Engine;

/// The requests of windows in a lane.
#[derive(Default)]
pub(super) struct WindowRequests {
    /// The requests that have not ended.
    under_way: Slab<UnderWay>,
    /// The errors of requests that have ended, and whose results were not taken, by the engine's request.
    errors: HashMap<RequestId, Error>,
}

struct UnderWay {
    of_window: RequestId,
    of_engine: RequestId,
    /// Takes the memory of a window that is being freed.
    freed: Option<Freed>,
}

/// Returns the memory of a window. It is called when the call that frees the window ends, with true if all ranks have
/// freed the window.
pub(crate) type Freed = Box<dyn FnOnce(bool) -> Result<Memory, Error> + Send>;

impl WindowRequests {
    /// Returns true if no request is under way.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns true if every error was taken.
    #[inline(always)]
    pub(super) fn have_no_errors(&self) -> bool {
        self.errors.is_empty()
    }

    /// Ends each request of the engine whose request of the windows has ended. Returns their number.
    pub(super) fn advance<P: Port>(&mut self, engine: &mut Engine<P>) -> usize {
        let mut ended = 0;
        while let Some(number) = engine.parts().1.windows.next_ended() {
            let UnderWay { of_window, of_engine, freed } = self.under_way.remove(number as usize);
            let completion = engine.parts().1.windows.collect(of_window);
            self.end(engine, of_engine, completion, freed);
            ended += 1;
        }
        ended
    }

    /// Begins the request of the engine for a request of the windows, which may have ended already.
    fn begin<P: Port>(
        &mut self,
        engine: &mut Engine<P>,
        (now, context): (Time, u32),
        of_window: RequestId,
        freed: Option<Freed>,
    ) -> RequestId {
        let completion = match engine.parts().1.windows.collect(of_window) {
            // The usual end of an operation on mapped memory. Nothing needs progress, so the driver is not called.
            Some(Completion { result: Ok(()), memory }) if freed.is_none() => {
                return engine.begin_ended(now, context, memory.unwrap_or_else(|| Memory::zeroed(0)));
            }
            completion => completion,
        };
        let of_engine = engine.begin_composite(now, context);
        if completion.is_some() {
            self.end(engine, of_engine, completion, freed);
        } else {
            let number = self.under_way.insert(UnderWay { of_window, of_engine, freed });
            let number = u32::try_from(number).expect("requests have indices of 32 bits");
            engine.parts().1.windows.watch(of_window, number);
        }
        of_engine
    }

    fn end<P: Port>(
        &mut self,
        engine: &mut Engine<P>,
        of_engine: RequestId,
        completion: Option<Completion>,
        freed: Option<Freed>,
    ) {
        let (mut result, mut memory) = match completion {
            Some(completion) => (completion.result.map_err(Public::public), completion.memory),
            None => (Err(Error::NoSuchRequest), None),
        };
        let freed = freed.filter(|_| memory.is_none() && !engine.is_forgotten(of_engine));
        match freed.map(|take| take(result.is_ok())) {
            Some(Ok(part)) => memory = Some(part),
            Some(Err(error)) => result = result.and(Err(error)),
            None => {}
        }
        let memory = memory.unwrap_or_else(|| Memory::zeroed(0));
        // The engine knows other errors than windows have, so the error is kept here.
        let placeholder = samite_p2p::Error::Cancelled { fate: Fate::Unknown };
        let is_wanted =
            engine.end_composite(of_engine, result.as_ref().copied().map_err(|_| placeholder), memory);
        if let (Err(error), true) = (result, is_wanted) {
            self.errors.insert(of_engine, error);
        }
    }

    /// Cancels a request that the program has cancelled, if it is of a window. A request that the program has dropped
    /// continues: the other ranks may wait for the end of its epoch.
    pub(super) fn cancel<P: Port>(&mut self, engine: &mut Engine<P>, unwanted: RequestId) {
        if engine.is_forgotten(unwanted) {
            return;
        }
        if let Some((_, request)) = self.under_way.iter().find(|(_, request)| request.of_engine == unwanted) {
            let (out, stack) = engine.parts();
            stack.windows.cancel(out.link, request.of_window);
        }
    }

    /// Gives up the requests that the program has not dropped, because it gets no more results.
    pub(super) fn quit_all<P: Port>(&mut self, engine: &mut Engine<P>) {
        let held = self.under_way.iter().filter(|(_, request)| !engine.is_forgotten(request.of_engine));
        let held: Vec<_> = held.map(|(_, request)| request.of_window).collect();
        let (out, stack) = engine.parts();
        held.into_iter().for_each(|request| stack.windows.cancel(out.link, request));
    }

    /// Drops the error of a request whose result the program does not want.
    #[inline]
    pub(super) fn forget(&mut self, request: RequestId) {
        if !self.errors.is_empty() {
            self.errors.remove(&request);
        }
    }

    /// Returns the error of a request that has failed, or `error` if it is of no window.
    #[cold]
    pub(super) fn error_of(&mut self, request: RequestId, error: Error) -> Error {
        self.errors.remove(&request).unwrap_or(error)
    }
}

/// How a call goes on after it has begun a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It returns, so the driver may have to make progress.
    Returns,
    /// It waits for the request, and makes progress itself.
    Waits,
}

/// A call on the windows of a lane.
pub(crate) struct WindowCall<'a, P> {
    pub(crate) windows: &'a mut Windows,
    pub(crate) out: Out<'a, P>,
    pub(crate) deadline: Time,
}

impl<P: Port> Runtime<P> {
    /// Carries out a call on the windows.
    ///
    /// # Errors
    /// The errors of the call, [`Error::Closed`], [`Error::Forked`], [`Error::Condemned`].
    pub(crate) fn on_windows<R>(
        &self,
        bounds: &Bounds,
        call: impl FnOnce(WindowCall<'_, P>) -> Result<R, samite_rma::Error>,
    ) -> Result<R, Error> {
        let mut core = self.lock()?;
        let called = core.call_windows(self.clock.now(), bounds, call);
        self.rouse(&mut core);
        self.hand_over(&mut core, CallKind::Window);
        called
    }

    /// Carries out a call that returns true if it has completed an operation. In that case also makes progress: a
    /// program may repeat such calls until another rank changes a value, and that rank may wait for this one.
    ///
    /// # Errors
    /// Returns the errors of [`Runtime::on_windows`].
    pub(crate) fn try_on_windows(
        &self,
        bounds: &Bounds,
        call: impl FnOnce(WindowCall<'_, P>) -> Result<bool, samite_rma::Error>,
    ) -> Result<bool, Error> {
        let mut core = self.lock()?;
        let now = self.clock.now();
        let mut called = core.call_windows(now, bounds, call);
        if matches!(called, Ok(true)) && !core.engine.seems_idle() {
            called = core.step(now, &mut ()).map(|_| true).map_err(Public::public);
        }
        self.rouse(&mut core);
        self.hand_over(&mut core, CallKind::Window);
        called
    }

    /// Repeats a call until it returns true or this time has passed. Makes progress before each call.
    ///
    /// # Errors
    /// Returns the errors of [`Runtime::on_windows`].
    pub(crate) fn retry_on_windows(
        &self,
        bounds: &Bounds,
        at_most: Duration,
        mut call: impl FnMut(WindowCall<'_, P>) -> Result<bool, samite_rma::Error>,
    ) -> Result<bool, Error> {
        let mut until = None;
        loop {
            let mut core = self.lock()?;
            let now = self.clock.now();
            let until = *until.get_or_insert_with(|| now.after(at_most.as_nanos() as u64));
            core.step(now, &mut ()).map_err(Public::public)?;
            let called = core.call_windows(now, bounds, &mut call);
            self.rouse(&mut core);
            if !matches!(called, Ok(false)) || now >= until {
                self.hand_over(&mut core, CallKind::Window);
                return called;
            }
        }
    }

    /// Carries out a call that begins a request of the windows, if it begins one. Returns the engine's request, and the
    /// other result of the call. `freed` takes the memory of a window that the call frees.
    ///
    /// # Errors
    /// Returns the errors of [`Runtime::on_windows`].
    pub(crate) fn begin_on_windows<R>(
        &self,
        context: u32,
        bounds: &Bounds,
        freed: Option<Freed>,
        then: Then,
        call: impl FnOnce(WindowCall<'_, P>) -> Result<(Option<RequestId>, R), samite_rma::Error>,
    ) -> Result<(Option<RequestId>, R), Error> {
        let mut core = self.lock()?;
        let now = self.clock.now();
        let called = core.call_windows(now, bounds, call);
        let begun = called.map(|(request, result)| {
            let Core { engine, windows, .. } = &mut *core;
            let request = request.map(|of_window| {
                let of_engine = windows.begin(engine, (now, context), of_window, freed);
                windows.advance(engine);
                of_engine
            });
            (request, result)
        });
        self.rouse(&mut core);
        if then == Then::Returns {
            self.hand_over(&mut core, CallKind::Nonblocking);
        }
        begun
    }

    /// Returns a request that has ended, for an operation on `memory` that the caller has carried out.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn begin_ended(&self, context: u32, memory: Memory) -> Result<RequestId, Error> {
        let mut core = self.lock()?;
        let now = core.now;
        Ok(core.engine.begin_ended(now, context, memory))
    }

    /// Returns the number of the next window of a communicator.
    pub(crate) fn next_window(&self, derived: Option<&Derived>) -> u64 {
        self.counter(derived).take_window()
    }

    /// Begins an operation that never ends by itself, because other ranks may access a window of this rank at any time.
    /// While it is under way, a thread makes progress between the program's calls.
    pub(crate) fn admit_accesses(&self, context: u32) -> Result<RequestId, Error> {
        self.try_act(|engine, now| engine.begin_composite(now, context))
    }

    /// Ends an operation that [`admit_accesses`](Self::admit_accesses) has begun.
    pub(crate) fn end_accesses(&self, request: RequestId) {
        self.act(|engine, _| {
            engine.end_composite(request, Ok(()), Memory::zeroed(0));
            engine.collect(request, &mut ());
        });
    }
}

impl<P: Port> Core<P> {
    fn call_windows<R>(
        &mut self,
        now: Time,
        bounds: &Bounds,
        call: impl FnOnce(WindowCall<'_, P>) -> Result<R, samite_rma::Error>,
    ) -> Result<R, Error> {
        if let Some(why) = &self.condemned {
            return Err(Error::Condemned { why: why.clone() });
        }
        self.now = now;
        let deadline = bounds.timeout.map_or(Time::NEVER, |timeout| super::deadline_after(now, timeout));
        let (out, stack) = self.engine.parts();
        out.link.set_now(now);
        let had_recorded = stack.windows.recorded() > 0;
        let result = call(WindowCall { windows: &mut stack.windows, out, deadline });
        self.engine.drive(&mut ());
        if !had_recorded && self.engine.parts().1.windows.recorded() > 0 {
            self.background.note_recorded();
        }
        result.map_err(Public::public)
    }
}

#[cfg(test)]
mod tests {
    use crate::Rank;

    #[test]
    fn the_errors_of_dropped_requests_are_dropped() {
        crate::local(1, |world| {
            let comm = world.comm();
            let window = comm.window(vec![0_u8; 1]).unwrap();
            for _ in 0..10 {
                let request = window.post(&[Rank(0)]).unwrap().iclose().unwrap();
                request.cancel();
                assert!(request.is_finished(), "it has failed");
                drop(request);
            }
            assert!(comm.runtime.lock().unwrap().windows.errors.is_empty());
        });
    }
}
