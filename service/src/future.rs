//! Futures of requests, probes and claims.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use samite_p2p::Pattern;

use crate::comm::outside_handler;
use crate::error::Public;
use crate::owned::Owned;
use crate::request::{Done, Failed, Request};
use crate::runtime::{Entry, Sought, contain};
use crate::stack::Engine;
use crate::{Comm, Error, Message, Status};

/// The future of a [`Request`], made by awaiting it. It returns the same result as [`Request::wait`], with one
/// difference: like [`Request::test`] it does not wait for the launcher's report of why a peer failed, so the cause may
/// be less precise.
///
/// Any executor can poll it. While futures wait, a thread of the runtime makes progress for them, and the deadline and
/// the cancel of their communicator apply. Dropping the future drops the request.
///
/// ```
/// # use std::{future::{Future, IntoFuture}, pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread};
/// # struct Unpark(thread::Thread);
/// # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
/// # fn block_on<F: IntoFuture>(future: F) -> F::Output {
/// #     let mut future = pin!(future.into_future());
/// #     let waker = Waker::from(Arc::new(Unpark(thread::current())));
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(output) => return output,
/// #             Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
/// # samite::local(2, |world| {
/// # let comm = world.comm();
/// let other = samite::Rank(1 - comm.rank().0);
/// // Any executor has such a `block_on`.
/// let received = block_on(async {
///     let receive = comm.irecv(vec![0; 1], other, 7)?;
///     comm.isend(vec![comm.rank().0], other, 7)?.await?;
///     receive.await
/// })?;
/// assert_eq!(received.buffer, [other.0]);
/// # Ok::<(), samite::Error>(())
/// # }).into_iter().for_each(Result::unwrap);
/// ```
#[derive(Debug)]
#[must_use = "a request that is dropped is cancelled"]
pub struct RequestFuture<B: Owned> {
    request: Request<B>,
    entry: Entry,
}

impl<B: Owned> RequestFuture<B> {
    /// Cancels the request, as [`Request::cancel`]; the future returns the result.
    pub fn cancel(&self) {
        self.request.cancel();
    }
}

/// The future may be moved between two polls: no field refers to another one.
impl<B: Owned> Unpin for RequestFuture<B> {}

impl<B: Owned> IntoFuture for Request<B> {
    type Output = Result<Done<B>, Failed<B>>;
    type IntoFuture = RequestFuture<B>;

    fn into_future(self) -> RequestFuture<B> {
        RequestFuture { request: self, entry: Entry::Nowhere }
    }
}

impl<B: Owned> Future for RequestFuture<B> {
    type Output = Result<Done<B>, Failed<B>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_as("Request::await", context.waker())
    }
}

impl<B: Owned> RequestFuture<B> {
    #[inline(always)]
    pub(crate) fn poll_as(&mut self, call: &'static str, waker: &Waker) -> Poll<Result<Done<B>, Failed<B>>> {
        self.request.poll(Some(call), &mut self.entry, waker)
    }

    /// Calls `body` with the result: in this call if the request has ended, otherwise later, in the thread that wakes
    /// futures.
    pub(crate) fn call(self, body: impl FnOnce(Result<Done<B>, Failed<B>>) + Send + 'static) {
        if let Some(call) = Arc::new(Callback(Mutex::new(Some((self, body))))).turn() {
            in_turn(call);
        }
    }
}

/// A future that polls itself when it is woken, and the function to call with its result.
struct Callback<B: Owned, F>(Mutex<Option<(RequestFuture<B>, F)>>);

impl<B: Owned, F: FnOnce(Result<Done<B>, Failed<B>>) + Send + 'static> Callback<B, F> {
    /// Polls the future. Returns the call of the function if the future has ended.
    fn turn(self: Arc<Self>) -> Option<Call> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (future, _) = state.as_mut()?;
        let waker = Waker::from(Arc::clone(&self));
        let RequestFuture { request, entry } = future;
        // The poll gets no name of a call, so that it does not call an error handler under this lock.
        let Poll::Ready(end) = request.poll(None, entry, &waker) else { return None };
        let taken = state.take();
        // Unlock first: `body`, an error handler and the drop of the future run code of the program, which may take any
        // lock and may wake this callback again.
        drop(state);
        let (future, body) = taken?;
        let comm = end.is_err().then(|| future.request.comm().clone());
        drop(future);
        Some(Box::new(move || {
            body(match comm {
                None => end,
                Some(comm) => comm.handle_result("Request::on_end", end),
            });
        }))
    }
}

type Call = Box<dyn FnOnce()>;

thread_local! {
    /// The callbacks that this thread calls after the present callback. `None` while it calls no callback.
    static LATER: RefCell<Option<VecDeque<Call>>> = const { RefCell::new(None) };
}

/// Calls a callback. If this thread is inside another callback, the call is made after that callback ends: nested calls
/// of a long chain of callbacks, each of which starts a request that has ended already, would overflow the stack.
fn in_turn(body: Call) {
    let is_first = LATER.with_borrow_mut(|later| match later {
        Some(later) => {
            later.push_back(body);
            None
        }
        None => {
            *later = Some(VecDeque::new());
            Some(body)
        }
    });
    let Some(mut body) = is_first else { return };
    // If a callback panics, the drop of this value calls the waiting callbacks.
    let _rest = Rest;
    loop {
        body();
        match LATER.with_borrow_mut(|later| later.as_mut().and_then(VecDeque::pop_front)) {
            Some(next) => body = next,
            None => return,
        }
    }
}

/// A value that calls the waiting callbacks when it is dropped, after a panic of the callback before them.
struct Rest;

impl Drop for Rest {
    fn drop(&mut self) {
        let later = LATER.take().unwrap_or_default();
        for body in later {
            contain(|| in_turn(body));
        }
    }
}

impl<B: Owned, F: FnOnce(Result<Done<B>, Failed<B>>) + Send + 'static> Wake for Callback<B, F> {
    fn wake(self: Arc<Self>) {
        if let Some(call) = self.turn() {
            in_turn(Box::new(|| outside_handler(call)));
        }
    }
}

impl<B: Owned> Drop for RequestFuture<B> {
    fn drop(&mut self) {
        self.request.end_task(&mut self.entry);
    }
}

/// The future of a probe, which returns the status of a message that matches. Made by [`Comm::probe_async`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct ProbeFuture(Search);

/// The future of a claimed message. Made by [`Comm::claim_async`]. If it is dropped before it returns a message, no
/// message is claimed.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct ClaimFuture(Search);

#[derive(Debug)]
struct Search {
    comm: Comm,
    /// The search for a message, or the result if no search is needed: the source is absent, or the call is wrong.
    sought: Result<Sought, Option<Result<Status, Error>>>,
}

impl Search {
    fn new(comm: &Comm, pattern: Result<Option<Pattern>, Error>, tag: u64) -> Self {
        let begun = comm.runtime.now();
        let sought = match pattern {
            Ok(Some(pattern)) => Ok(Sought { pattern, begun, entry: Entry::Nowhere }),
            Ok(None) => Err(Some(comm.absent(tag))),
            Err(error) => Err(Some(Err(error))),
        };
        Self { comm: comm.clone(), sought }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        if let Ok(sought) = &mut self.sought {
            self.comm.runtime.end_task(&mut sought.entry);
        }
    }
}

impl ProbeFuture {
    pub(crate) fn new(comm: &Comm, pattern: Result<Option<Pattern>, Error>, tag: u64) -> Self {
        Self(Search::new(comm, pattern, tag))
    }
}

impl ClaimFuture {
    pub(crate) fn new(comm: &Comm, pattern: Result<Option<Pattern>, Error>, tag: u64) -> Self {
        Self(Search::new(comm, pattern, tag))
    }
}

impl Future for ProbeFuture {
    type Output = Result<Status, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Search { comm, sought } = &mut self.get_mut().0;
        let found = match sought {
            Err(known) => known.take().unwrap_or(Err(Error::NoSuchRequest)),
            Ok(sought) => {
                let (pattern, waker) = (sought.pattern, context.waker());
                let probe = |engine: &mut Engine<_>| engine.probe(&pattern);
                match ready!(comm.runtime.poll_search(sought, &comm.bounds, waker, probe)) {
                    Ok(status) => comm.local(Ok(status.public())),
                    Err(error) => Err(comm.local_error(error)),
                }
            }
        };
        Poll::Ready(comm.handle_result("probe_async", found))
    }
}

impl Future for ClaimFuture {
    type Output = Result<Message, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Search { comm, sought } = &mut self.get_mut().0;
        let found = match sought {
            Err(known) => known.take().unwrap_or(Err(Error::NoSuchRequest)).map(|status| (status, None)),
            Ok(sought) => {
                let (pattern, waker) = (sought.pattern, context.waker());
                let claim = |engine: &mut Engine<_>| engine.claim(&pattern);
                match ready!(comm.runtime.poll_search(sought, &comm.bounds, waker, claim)) {
                    Ok((status, claimed)) => {
                        comm.local(Ok(status.public())).map(|status| (status, Some(claimed)))
                    }
                    Err(error) => Err(comm.local_error(error)),
                }
            }
        };
        let found = comm.handle_result("claim_async", found);
        Poll::Ready(found.map(|(status, claimed)| Message::new(comm.clone(), status, claimed)))
    }
}
