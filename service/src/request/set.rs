//! Sets of requests, whose results are taken one by one.

use std::mem;
use std::sync::Arc;

use samite_fabric::Port;
use samite_p2p::{Lent, Outcome, RequestId};

use super::{Awaiting, Done, Failed, Request};
use crate::comm::{Derived, Extras};
use crate::members::{Member, Members};
use crate::owned::Owned;
use crate::runtime::{Bounds, Completion};
use crate::stack::Engine;
use crate::{CancelToken, Comm, Error};

/// Requests under way, whose results the caller takes in the order in which they end.
///
/// Taking a result costs the same for any number of requests (MPI's `MPI_Waitany` and `MPI_Waitsome` look at all
/// requests).
///
/// ```
/// # samite::local(2, |world| -> Result<(), samite::Error> {
/// # let comm = world.comm();
/// let mut receives = comm.request_set();
/// for _ in 0..2 {
///     receives.insert(comm.irecv(vec![0u32; 1], samite::Source::ANY, 7)?).expect("a request of this world");
/// }
/// for to in (0..comm.size()).map(samite::Rank) {
///     comm.send(&[comm.rank().0], to, 7)?;
/// }
/// while let Some((_key, received)) = receives.wait_any() {
///     let done = received?;
///     assert_eq!(done.buffer, [done.status.peer.0]);
/// }
/// # Ok(())
/// # });
/// ```
///
/// Rounds of persistent and partitioned operations can be in a set too, beside other requests: see
/// [`PersistentSend::into_request`](crate::PersistentSend::into_request). When a round ends, the set returns its
/// operation, which can be started and inserted again. A round that fails or is cancelled returns its operation with
/// the error.
///
/// ```
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// use samite::{AnyBuffer, PersistentRecv};
///
/// let other = samite::Rank(1 - comm.rank().0);
/// let mut set = comm.request_set::<AnyBuffer>();
/// let mut receive = comm.recv_init(vec![0u32; 1], other, 7)?;
/// receive.start()?;
/// let mut key = set.insert(receive.into_request().into_any()).expect("a request of this world");
/// for round in 0..3 {
///     set.insert(comm.isend(vec![round], other, 7)?.into_any()).expect("a request of this world");
/// }
/// let mut rounds = 0;
/// while let Some((ended, end)) = set.wait_any() {
///     let buffer = end?.buffer;
///     if ended == key {
///         let mut receive = buffer.downcast::<PersistentRecv<Vec<u32>>>().expect("the operation");
///         assert_eq!(*receive.buffer()?, [rounds]);
///         rounds += 1;
///         if rounds < 3 {
///             receive.start()?;
///             key = set.insert(receive.into_request().into_any()).expect("a request of this world");
///         }
///     }
/// }
/// assert_eq!(rounds, 3);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
///
/// Results are returned in the order in which the requests end. So an operation that is started and inserted again and
/// again does not delay another request of the set.
///
/// Dropping a set cancels its requests, as dropping each request does. If a request is a round of a persistent or
/// partitioned operation, the operation is dropped too. The drop of a partitioned operation also ends the operation of
/// the other rank.
#[derive(Debug)]
pub struct RequestSet<B: Owned> {
    comm: Comm,
    watcher: u32,
    members: Members<UnderWay<B::Kept>, Parts<B::Kept>>,
    cancels: Cancels,
}

/// The key of a request in a set, and its result.
type End<B> = (usize, Result<Done<B>, Failed<B>>);

impl<B: Owned> RequestSet<B> {
    pub(crate) fn new(comm: Comm) -> Self {
        let watcher = comm.runtime.add_watcher();
        Self { comm, watcher, members: Members::default(), cancels: Cancels::default() }
    }

    /// Adds a request, and returns its key in the set. A key is reused once its request was taken out. The request
    /// keeps its own deadline and cancel token; a time-out of the set's communicator has no effect. If the cancel token
    /// of the set's communicator was cancelled, each call that waits or tests cancels one request of the set, so that a
    /// wait ends. A request whose result [`Request::test`] has returned ends in the set with [`Error::NoSuchRequest`],
    /// and a request for a round that was not started with [`Error::Inactive`].
    ///
    /// # Errors
    /// Returns the request if it belongs to another [`World`](crate::World) or another [lane](Comm::lane).
    pub fn insert(&mut self, mut request: Request<B>) -> Result<usize, Request<B>> {
        if !Arc::ptr_eq(&request.comm.runtime, &self.comm.runtime) {
            return Err(request);
        }
        let id = request.id.take();
        let Comm { derived, bounds, extras, .. } = request.comm.clone();
        let parts = Parts { derived, bounds, extras, kept: mem::take(&mut request.kept) };
        let Some(id) = id else { return Ok(self.members.insert(Member::Ended(parts))) };
        if let Some(cancel) = &parts.bounds.cancel {
            self.cancels.add(cancel);
            self.comm.runtime.heeds(cancel);
        }
        let key = self.members.insert(Member::UnderWay(UnderWay { id, parts }));
        self.comm.runtime.watch(id, self.watcher, key as u32);
        Ok(key)
    }

    /// Returns the number of requests in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns true if no request is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.len() == 0
    }

    /// Waits until a request ends, and takes it out. Returns its key, and the result that [`Request::wait`] would have
    /// returned. Returns `None` if the set is empty.
    #[must_use = "a result is returned once"]
    pub fn wait_any(&mut self) -> Option<End<B>> {
        self.next("RequestSet::wait_any")
    }

    /// Waits as [`wait_any`](Self::wait_any) does. `call` is the name of the public call.
    #[inline]
    fn next(&mut self, call: &'static str) -> Option<End<B>> {
        if let Some(key) = self.members.pop_ended() {
            return Some(self.end(call, key, None));
        }
        let (key, &UnderWay { id, .. }) = self.members.some_under_way()?;
        let (members, cancels) = (&self.members, &mut self.cancels);
        let mut watched = Watched { watcher: self.watcher, key, members, cancels };
        let completion = self.comm.runtime.finish(id, &mut watched, &self.comm.bounds);
        let key = watched.key;
        Some(self.end(call, key, completion))
    }

    /// Waits until a request ends, and takes out all that have ended by then. Returns an empty list if the set is
    /// empty.
    #[must_use = "a result is returned once"]
    pub fn wait_some(&mut self) -> Vec<End<B>> {
        let call = "RequestSet::wait_some";
        let mut ends: Vec<_> = self.next(call).into_iter().collect();
        ends.extend(std::iter::from_fn(|| self.take(call, true)));
        ends
    }

    /// Waits until all requests have ended, and takes them out, in the order of their ends.
    #[must_use = "a result is returned once"]
    pub fn wait_all(&mut self) -> Vec<End<B>> {
        std::iter::from_fn(|| self.next("RequestSet::wait_all")).collect()
    }

    /// Makes progress, and takes out a request that has ended, if there is one: see [`wait_any`](Self::wait_any). An
    /// error of the runtime itself ([`Error::Closed`], [`Error::Forked`], [`Error::Transport`], [`Error::Condemned`])
    /// becomes the result of one of the requests.
    #[must_use = "a result is returned once"]
    pub fn test_any(&mut self) -> Option<End<B>> {
        self.drive_and_take("RequestSet::test_any")
    }

    fn drive_and_take(&mut self, call: &'static str) -> Option<End<B>> {
        self.heed_cancels();
        let driven = self.comm.runtime.drive(&mut ());
        self.take(call, false).or_else(|| self.take_failed(call, driven.err()?))
    }

    /// Makes progress, and takes out all requests that have ended: see [`test_any`](Self::test_any).
    #[must_use = "a result is returned once"]
    pub fn test_some(&mut self) -> Vec<End<B>> {
        let call = "RequestSet::test_some";
        let mut ends: Vec<_> = self.drive_and_take(call).into_iter().collect();
        ends.extend(std::iter::from_fn(|| self.take(call, false)));
        ends
    }

    /// Makes progress, and takes out all requests if all have ended, in the order of their ends. Otherwise takes out
    /// none, and returns `None` (`MPI_Testall`). An empty set returns an empty list. A receive from any source that
    /// must report a failure counts as ended. After an error of the runtime itself (see [`test_any`](Self::test_any))
    /// all requests are taken out, and the error is the result of each that has not ended.
    ///
    /// ```
    /// # samite::local(1, |world| -> Result<(), samite::Error> {
    /// # let comm = world.comm();
    /// let mut set = comm.request_set();
    /// for tag in [1, 2] {
    ///     set.insert(comm.irecv(vec![0u8; 1], comm.rank(), tag)?).expect("a request of this world");
    /// }
    /// comm.send(&[5u8], comm.rank(), 1)?;
    /// assert!(set.test_all().is_none(), "the other message was not sent");
    /// comm.send(&[6u8], comm.rank(), 2)?;
    /// let ends = loop {
    ///     if let Some(ends) = set.test_all() {
    ///         break ends;
    ///     }
    /// };
    /// assert_eq!(ends.len(), 2);
    /// # Ok(())
    /// # }).into_iter().for_each(Result::unwrap);
    /// ```
    #[must_use = "a result is returned once"]
    pub fn test_all(&mut self) -> Option<Vec<End<B>>> {
        let call = "RequestSet::test_all";
        self.heed_cancels();
        let driven = self.comm.runtime.drive(&mut ());
        let members = &mut self.members;
        let look = |engine: &Engine<_>| {
            members.have_all_ended(|member| engine.outcome(member.id) != Outcome::Pending)
        };
        match driven.and_then(|()| self.comm.runtime.peek(look)) {
            Ok(false) => None,
            Ok(true) => Some(std::iter::from_fn(|| self.take(call, false)).collect()),
            Err(error) => {
                let mut take = || self.take(call, false).or_else(|| self.take_failed(call, error.clone()));
                Some(std::iter::from_fn(&mut take).collect())
            }
        }
    }

    /// Cancels the requests of one cancel token that the program has cancelled, unless they were cancelled before. If
    /// the token of the set's communicator was cancelled, cancels one request of the set too.
    fn heed_cancels(&mut self) {
        let own = self.cancels.take_used().map_or(Vec::new(), |used| used_by(&self.members, &used));
        let is_cancelled = self.comm.bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        let one =
            if is_cancelled { self.members.some_under_way().map(|(_, member)| member.id) } else { None };
        if !own.is_empty() || one.is_some() {
            self.comm.runtime.cancel_all(own.into_iter().chain(one));
        }
    }

    /// Takes out a request, with an error of the runtime as its result: after such an error it can make no progress.
    fn take_failed(&mut self, call: &'static str, error: Error) -> Option<End<B>> {
        let (key, &UnderWay { id, .. }) = self.members.some_under_way()?;
        self.comm.runtime.forget(id);
        Some(self.end(call, key, Some(Completion { result: Err(error), memory: None })))
    }

    /// Takes out a request that has ended already. If `explains` is true, this call may wait for the launcher's report
    /// of why a peer failed.
    fn take(&mut self, call: &'static str, explains: bool) -> Option<End<B>> {
        if let Some(key) = self.members.pop_ended() {
            return Some(self.end(call, key, None));
        }
        let explained = explains.then_some(&self.comm.bounds);
        let (key, completion) = self.comm.runtime.take_end(self.watcher, &mut (), explained)?;
        Some(self.end(call, key as usize, completion))
    }

    fn end(&mut self, call: &'static str, key: usize, completion: Option<Completion>) -> End<B> {
        let Parts { derived, bounds, extras, kept } = match self.members.remove(key) {
            Some(Member::UnderWay(UnderWay { parts, .. })) => {
                self.cancels.remove(parts.bounds.cancel.as_ref());
                parts
            }
            Some(Member::Ended(parts)) => parts,
            None => unreachable!("only a member of the set ends"),
        };
        let report = |error: &Error| {
            self.comm_of(derived.clone(), bounds, extras).raise(call, error);
        };
        (key, B::end(kept, derived.as_deref(), completion, report))
    }

    /// Returns the handle on which a request was started.
    #[cold]
    fn comm_of(&self, derived: Option<Arc<Derived>>, bounds: Bounds, extras: Option<Arc<Extras>>) -> Comm {
        Comm { bounds, extras, ..self.comm.with_members(derived) }
    }

    /// Takes a request out before its end. The request continues.
    pub fn remove(&mut self, key: usize) -> Option<Request<B>> {
        let (id, parts) = match self.members.remove(key)? {
            Member::UnderWay(UnderWay { id, parts }) => {
                self.cancels.remove(parts.bounds.cancel.as_ref());
                self.comm.runtime.unwatch(id);
                (Some(id), parts)
            }
            Member::Ended(parts) => (None, parts),
        };
        let Parts { derived, bounds, extras, kept } = parts;
        Some(Request { comm: self.comm_of(derived, bounds, extras), id, kept })
    }

    /// Returns the operation of a round in the set: see [`Request::operation`].
    #[must_use]
    pub fn operation<O: Owned>(&self, key: usize) -> Option<&O> {
        let kept = match self.members.get(key)? {
            Member::UnderWay(UnderWay { parts, .. }) | Member::Ended(parts) => &parts.kept,
        };
        B::operation(kept)?.downcast_ref()
    }

    /// Cancels a request, as [`Request::cancel`]. It stays in the set until its end is taken.
    pub fn cancel(&mut self, key: usize) {
        if let Some(&UnderWay { id, .. }) = self.members.under_way(key)
            && let Some(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.cancel(id);
        }
    }
}

impl<B: Owned> Drop for RequestSet<B> {
    fn drop(&mut self) {
        // Forget only the ordinary requests here. A member that is a round of a persistent or partitioned operation
        // owns that operation, and the operation abandons its round itself when it is dropped with the set.
        let buffers =
            self.members.all_under_way().filter(|member| B::operation(&member.parts.kept).is_none());
        buffers.for_each(|member| self.comm.runtime.forget(member.id));
        self.comm.runtime.remove_watcher(self.watcher);
    }
}

/// A request of the set that had not ended when it was added.
#[derive(Debug)]
struct UnderWay<K> {
    id: RequestId,
    parts: Parts<K>,
}

/// The parts of a request, apart from its name in the engine. The request keeps its own communicator, which may differ
/// from the set's.
#[derive(Debug)]
struct Parts<K> {
    derived: Option<Arc<Derived>>,
    bounds: Bounds,
    extras: Option<Arc<Extras>>,
    kept: K,
}

/// The different cancel tokens of a set's requests. Each is kept with the number of its requests, and with a flag that
/// is true until its requests were cancelled. So a wait looks at each token, and not at each request.
#[derive(Debug, Default)]
struct Cancels(Vec<(CancelToken, usize, bool)>);

impl Cancels {
    fn add(&mut self, cancel: &CancelToken) {
        match self.0.iter_mut().find(|(known, ..)| known.is_same(cancel)) {
            Some((_, requests, is_armed)) => (*requests, *is_armed) = (*requests + 1, true),
            None => self.0.push((cancel.clone(), 1, true)),
        }
    }

    fn remove(&mut self, cancel: Option<&CancelToken>) {
        let Some(cancel) = cancel else { return };
        if let Some(place) = self.0.iter().position(|(known, ..)| known.is_same(cancel)) {
            self.0[place].1 -= 1;
            if self.0[place].1 == 0 {
                self.0.swap_remove(place);
            }
        }
    }

    /// Returns a token that the program has cancelled and whose requests are not cancelled yet.
    fn take_used(&mut self) -> Option<CancelToken> {
        let (cancel, _, is_armed) =
            self.0.iter_mut().find(|(cancel, _, is_armed)| *is_armed && cancel.is_cancelled())?;
        *is_armed = false;
        Some(cancel.clone())
    }
}

/// Returns the requests that were started with a cancel token.
fn used_by<K>(members: &Members<UnderWay<K>, Parts<K>>, cancel: &CancelToken) -> Vec<RequestId> {
    let used = members
        .all_under_way()
        .filter(|member| member.parts.bounds.cancel.as_ref().is_some_and(|own| own.is_same(cancel)));
    used.map(|member| member.id).collect()
}

/// A wait that ends with the first request of a watcher that ends.
struct Watched<'a, K> {
    watcher: u32,
    /// The key of the awaited request.
    key: usize,
    members: &'a Members<UnderWay<K>, Parts<K>>,
    cancels: &'a mut Cancels,
}

impl<K> Awaiting for Watched<'_, K> {
    #[inline]
    fn first<P: Port>(&mut self, engine: &mut Engine<P>) -> Option<RequestId> {
        let (id, key) = engine.take_end(self.watcher)?;
        self.key = key as usize;
        Some(id)
    }

    #[inline]
    fn heed_cancels<P: Port>(&mut self, engine: &mut Engine<P>) -> bool {
        let Some(used) = self.cancels.take_used() else { return false };
        used_by(self.members, &used).into_iter().for_each(|id| engine.cancel(id));
        true
    }
}

impl<K> Lent for Watched<'_, K> {}
