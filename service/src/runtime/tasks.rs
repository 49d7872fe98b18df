//! Tasks: the futures that wait.
//!
//! A future that has no result yet leaves its [`Waker`] here. The *driver* ([`driving`](super::driving)) takes the
//! wakers of the futures that can continue, and calls them without the lock, because they run the executor's code. A
//! thread that makes progress for itself wakes the driver ([`Runtime::rouse`]). So only the driver looks for such
//! futures, and other threads do no work for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use samite_fabric::Port;
use samite_p2p::{Awaited, Outcome, Pattern, Report, RequestId, Time};
use slab::Slab;

use super::driving::Drivers;
use super::state::Core;
use super::waiting::deadline_after;
use super::{Bounds, Completion, Runtime, error_of, unfinished};
use crate::cancel::CancelToken;
use crate::error::{Error, Fate, Public};
use crate::stack::Engine;

/// The futures that wait for an engine.
#[derive(Default)]
pub(super) struct Tasks {
    /// The engine's watcher that gets the ends of all requests that futures await. `None` before the first such future.
    watcher: Option<u32>,
    /// Futures of requests, by the watcher's key.
    requests: Slab<Task>,
    searches: Slab<Search>,
    /// The number of futures of requests that have a [`CancelToken`].
    cancels: usize,
    pub(super) drivers: Drivers,
}

/// A waiting future. The waker is taken out before it is called, and is `None` from then on.
struct Task {
    waker: Option<Waker>,
    cancel: Option<CancelToken>,
}

/// A future that waits for a message.
struct Search {
    task: Task,
    pattern: Pattern,
    deadline: Time,
}

/// The key of a waiting future in [`Tasks`]. [`Runtime::end_task`] clears it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Entry {
    #[default]
    Nowhere,
    Request(usize),
    Search(usize),
}

/// A future that searches for a message that matches a pattern.
#[derive(Debug)]
pub(crate) struct Sought {
    pub(crate) pattern: Pattern,
    pub(crate) begun: Time,
    pub(crate) entry: Entry,
}

impl Task {
    fn new(waker: Waker, cancel: Option<&CancelToken>) -> Self {
        Self { waker: Some(waker), cancel: cancel.cloned() }
    }

    /// Takes the waker if the caller has used the [`CancelToken`].
    fn take_if_cancelled(&mut self) -> Option<Waker> {
        if !self.cancel.as_ref()?.is_cancelled() {
            return None;
        }
        self.cancel = None;
        self.waker.take()
    }
}

impl Tasks {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.searches.is_empty()
    }

    /// Adds the future of a request. Returns the watcher, and the watcher's key for the request.
    fn insert<P: Port>(&mut self, engine: &mut Engine<P>, task: Task) -> (u32, usize) {
        self.cancels += usize::from(task.cancel.is_some());
        let watcher = *self.watcher.get_or_insert_with(|| engine.add_watcher());
        (watcher, self.requests.insert(task))
    }

    /// Returns true if there may be a request that has ended and whose future was not woken yet.
    pub(super) fn are_ready<P: Port>(&self, engine: &Engine<P>) -> bool {
        self.watcher.is_some_and(|watcher| engine.has_ends(watcher))
    }

    /// Removes a future. The caller drops it without the lock: its waker may own other futures, whose drop takes the
    /// lock.
    fn remove(&mut self, entry: &mut Entry) -> Option<Task> {
        match std::mem::take(entry) {
            Entry::Nowhere => None,
            Entry::Request(key) => {
                let task = self.requests.try_remove(key)?;
                self.cancels -= usize::from(task.cancel.is_some());
                Some(task)
            }
            Entry::Search(key) => self.searches.try_remove(key).map(|search| search.task),
        }
    }

    /// Takes the wakers of all futures.
    pub(super) fn take_all(&mut self) -> Vec<Waker> {
        let requests = self.requests.iter_mut().filter_map(|(_, task)| task.waker.take());
        let searches = self.searches.iter_mut().filter_map(|(_, search)| search.task.waker.take());
        requests.chain(searches).collect()
    }

    /// Moves the wakers of the futures that can continue to `ready`. Returns the earliest deadline of the searches that
    /// still wait.
    pub(super) fn take_ready<P: Port>(
        &mut self,
        engine: &mut Engine<P>,
        now: Time,
        ready: &mut Vec<Waker>,
    ) -> Time {
        if let Some(watcher) = self.watcher {
            while let Some((id, key)) = engine.take_end(watcher) {
                // Stop watching the request. Otherwise the engine would return it at each step, if it is a receive that
                // no rank can serve any more.
                engine.unwatch(id);
                ready.extend(self.requests.get_mut(key as usize).and_then(|task| task.waker.take()));
            }
        }
        if self.cancels > 0 {
            for (_, task) in &mut self.requests {
                let had = task.cancel.is_some();
                ready.extend(task.take_if_cancelled());
                self.cancels -= usize::from(had && task.cancel.is_none());
            }
        }
        let mut until = Time::NEVER;
        for (_, Search { task, pattern, deadline }) in &mut self.searches {
            if *deadline <= now || engine.has_news_for(pattern) {
                ready.extend(task.waker.take());
            } else {
                until = until.min(*deadline);
                ready.extend(task.take_if_cancelled());
            }
        }
        until
    }
}

impl<P: Port + 'static> Runtime<P>
where
    Self: Send + Sync,
{
    /// Drives the engine once. If the request has ended, returns its result as [`finish`](Self::finish) does, but does
    /// not wait for the cause of a failure. Otherwise `waker` is called when the request may have ended.
    pub(crate) fn poll_end(
        self: &Arc<Self>,
        id: RequestId,
        entry: &mut Entry,
        bounds: &Bounds,
        waker: &Waker,
    ) -> Poll<Option<Completion>> {
        // Cloning a waker runs the executor's code, which may call the library. So the lock is taken only afterwards.
        let waker = waker.clone();
        let mut core = match self.core.lock() {
            Ok(core) => core,
            Err(refused) => return Poll::Ready(Some(unfinished(refused))),
        };
        let old = core.tasks.remove(entry);
        // Poll once without reading the clock, and without polling the launcher's directory (see `Core::attend`). That
        // is enough if the request has ended.
        let mut end = core.poll(&mut ()).map(|events| (events, core.take_ended(id)));
        if let Ok((_, None)) = end {
            let cancel = bounds.cancel.as_ref();
            if let (Some(cancel), Some(watch)) = (cancel, &self.watch) {
                cancel.register(watch);
            }
            let is_cancelled = cancel.is_some_and(CancelToken::is_cancelled);
            if is_cancelled {
                core.cancel(id);
            }
            // The first poll may have ended the waits of other threads, which must be woken too.
            let events = end.map_or(0, |(events, _)| events);
            let news = core.attend(self.clock.now());
            end = news.map(|news| (events + usize::from(news), core.take_ended(id)));
            if let Ok((_, None)) = end {
                // A matched receive continues after a cancel. Leave the cancel out, so that it does not wake the future
                // again.
                let task = Task::new(waker, cancel.filter(|_| !is_cancelled));
                let pending = match self.start_driver(&mut core) {
                    Ok(()) => {
                        let Core { engine, tasks, .. } = &mut *core;
                        let (watcher, key) = tasks.insert(engine, task);
                        *entry = Entry::Request(key);
                        // There are fewer than 2^32 requests, so the key fits.
                        engine.watch(id, watcher, key as u32);
                        Poll::Pending
                    }
                    Err(error) => {
                        core.forget(id);
                        Poll::Ready(Some(Completion { result: Err(error), memory: None }))
                    }
                };
                self.rouse_after(&mut core, &end);
                drop(core);
                drop(old);
                return pending;
            }
        }
        self.rouse_after(&mut core, &end);
        let end = match end {
            Ok((_, end)) => end.unwrap_or(None),
            Err(error) => {
                core.forget(id);
                Some(Completion { result: Err(error.public()), memory: None })
            }
        };
        drop(core);
        drop(old);
        Poll::Ready(end)
    }

    /// Drives the engine once, and then calls `look`. If `look` finds nothing, `waker` is called when it may find
    /// something.
    pub(crate) fn poll_search<R>(
        self: &Arc<Self>,
        sought: &mut Sought,
        bounds: &Bounds,
        waker: &Waker,
        look: impl FnOnce(&mut Engine<P>) -> Result<Option<R>, samite_p2p::Error>,
    ) -> Poll<Result<R, Error>> {
        // Cloning and dropping a waker run the executor's code, which may call the library. So both happen without the
        // lock.
        let mut waker = Some(waker.clone());
        let mut core = match self.core.lock() {
            Ok(core) => core,
            Err(refused) => return Poll::Ready(Err(error_of(refused, Fate::NotDelivered))),
        };
        let old = core.tasks.remove(&mut sought.entry);
        let result = self.search(&mut core, sought, bounds, &mut waker, look);
        drop(core);
        drop(old);
        result.map_or(Poll::Pending, Poll::Ready)
    }

    fn search<R>(
        self: &Arc<Self>,
        core: &mut Core<P>,
        sought: &mut Sought,
        bounds: &Bounds,
        waker: &mut Option<Waker>,
        look: impl FnOnce(&mut Engine<P>) -> Result<Option<R>, samite_p2p::Error>,
    ) -> Option<Result<R, Error>> {
        let Sought { pattern, begun, ref mut entry } = *sought;
        let cancel = bounds.cancel.as_ref();
        if let (Some(cancel), Some(watch)) = (cancel, &self.watch) {
            cancel.register(watch);
        }
        let now = self.clock.now();
        match core.step(now, &mut ()) {
            Ok(0) => {}
            Ok(_) => self.rouse(core),
            Err(error) => return Some(Err(error.public())),
        }
        if let Some(end) = look(&mut core.engine).map_err(Public::public).transpose() {
            return Some(end);
        }
        let deadline = deadline_after(begun, bounds.timeout.unwrap_or(Duration::MAX));
        if deadline <= now {
            let report = core.report_of(&pattern, begun, now, Awaited::Message);
            let report = Report { other_tags: core.engine.other_tags(&pattern), ..report };
            return Some(Err(Error::TimedOut {
                fate: Fate::NotDelivered,
                report: Box::new(report.public()),
            }));
        }
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Some(Err(Error::Cancelled { fate: Fate::NotDelivered }));
        }
        if let Err(error) = self.start_driver(core) {
            return Some(Err(error));
        }
        let task = Task { waker: waker.take(), cancel: cancel.cloned() };
        *entry = Entry::Search(core.tasks.searches.insert(Search { task, pattern, deadline }));
        if core.sleeper.is_some_and(|sleeper| deadline < sleeper.until) {
            core.wake();
        }
        None
    }

    /// Removes a future that does not wait any more.
    pub(crate) fn end_task(&self, entry: &mut Entry) {
        if let Entry::Nowhere = entry {
            return;
        }
        let Ok(mut core) = self.core.lock() else { return };
        let old = core.tasks.remove(entry);
        drop(core);
        drop(old);
    }

    /// Wakes the sleeping threads after a step that had events or failed.
    fn rouse_after<T>(&self, core: &mut Core<P>, step: &Result<(usize, T), Box<samite_p2p::Error>>) {
        if !matches!(step, Ok((0, _))) {
            self.rouse(core);
        }
    }
}

impl<P: Port> Core<P> {
    /// Returns the result of a request that has ended or must report a failure, and `None` if the request continues.
    /// The inner `Option` is that of [`finish`](Runtime::finish).
    #[inline]
    fn take_ended(&mut self, id: RequestId) -> Option<Option<Completion>> {
        match self.engine.outcome(id) {
            Outcome::Ready => Some(self.collect(id, &mut ())),
            Outcome::FailurePending => self.end_by_failure(id, &mut ()).map(Some),
            Outcome::Pending => None,
        }
    }
}

/// Calls wakers, without the lock. If a waker panics, the other wakers are still called.
pub(super) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        contain(|| waker.wake());
    }
}

/// Calls a function of the program, whose panic must not end this thread.
pub(crate) fn contain(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call))
        && let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        // The payload of the panic has panicked when it was dropped. The payload of that second panic may do the same,
        // so it is leaked.
        std::mem::forget(again);
    }
}
