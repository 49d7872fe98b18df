//! Sets of requests, whose results are taken one by one.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use samite_fabric::Port;
use samite_fabric::mem::Element;
use samite_p2p::{Completion, Engine, Error, Lent, RequestId, Status};
use slab::Slab;

use super::{Done, Failed, Group, Request, result_of};
use crate::Comm;

/// Requests under way, whose results the caller takes in the order in which they end.
///
/// Taking a result costs the same for any number of requests (MPI's `MPI_Waitany` and `MPI_Waitsome` look at all).
///
/// ```
/// # samite::local(2, |world| -> Result<(), samite::Error> {
/// let mut receives = world.request_set();
/// for _ in 0..2 {
///     receives.insert(world.irecv(vec![0u32; 1], samite::Source::ANY, 7)?).expect("a request of this world");
/// }
/// for to in 0..world.size() {
///     world.send(&[world.rank()], to, 7)?;
/// }
/// while let Some((_key, received)) = receives.wait_any() {
///     let done = received?;
///     assert_eq!(done.buffer, [done.status.source]);
/// }
/// # Ok(())
/// # });
/// ```
///
/// A dropped set cancels its requests, as they do when dropped alone.
#[derive(Debug)]
pub struct RequestSet<T: Element> {
    comm: Comm,
    watcher: u32,
    entries: Slab<Entry>,
    /// Requests that had ended before they were inserted.
    ended: Vec<usize>,
    /// The place at which the search for a request under way continues.
    cursor: usize,
    element: PhantomData<fn() -> T>,
}

#[derive(Debug)]
enum Entry {
    UnderWay(RequestId),
    Ended(Option<Box<Completion>>),
}

/// The key of a request in a set, and its result.
type End<T> = (usize, Result<Done<T>, Failed<T>>);

impl<T: Element> RequestSet<T> {
    pub(crate) fn new(comm: Comm) -> Self {
        static WATCHERS: AtomicU32 = AtomicU32::new(0);
        let watcher = WATCHERS.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut call) = comm.runtime.enter(&comm.bounds) {
            call.start(|engine, _, _| engine.add_watcher(watcher));
        }
        Self { comm, watcher, entries: Slab::new(), ended: Vec::new(), cursor: 0, element: PhantomData }
    }

    /// Adds a request, and returns its key in the set. A key is reused once its request was taken out. The cancel of
    /// the set's communicator ends waits for it; the request keeps its own deadline.
    ///
    /// # Errors
    /// Returns the request if it belongs to another [`World`](crate::World).
    #[expect(clippy::result_large_err, reason = "the request goes back to its owner")]
    pub fn insert(&mut self, mut request: Request<T>) -> Result<usize, Request<T>> {
        if !Arc::ptr_eq(&request.comm.runtime, &self.comm.runtime) {
            return Err(request);
        }
        let Some(id) = request.id.take() else {
            let key = self.entries.insert(Entry::Ended(request.completion.take().map(Box::new)));
            self.ended.push(key);
            return Ok(key);
        };
        let key = self.entries.insert(Entry::UnderWay(id));
        if let Ok(mut call) = self.comm.runtime.enter(&self.comm.bounds) {
            let watcher = self.watcher;
            // There are fewer than 2^32 requests.
            call.start(|engine, _, _| engine.watch(id, watcher, key as u32));
        }
        Ok(key)
    }

    /// Returns the number of requests in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no request is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Waits until a request ends, and takes it out. Returns its key, and its result as of [`Request::wait`]. Returns
    /// `None` if the set is empty.
    pub fn wait_any(&mut self) -> Option<End<T>> {
        if let Some(key) = self.ended.pop() {
            return Some(self.end(key, None));
        }
        let (key, id) = self.some_under_way()?;
        let mut watched = Watched { watcher: self.watcher, key };
        let completion = self.comm.runtime.finish(id, &mut watched, &self.comm.bounds);
        Some(self.end(watched.key, completion))
    }

    /// Returns a request that has not ended as far as the set knows.
    fn some_under_way(&mut self) -> Option<(usize, RequestId)> {
        if self.entries.is_empty() {
            return None;
        }
        // Amortized constant: each round of the table passes only places that were emptied since the last one.
        loop {
            match self.entries.get(self.cursor) {
                Some(Entry::UnderWay(id)) => return Some((self.cursor, *id)),
                _ if self.cursor >= self.entries.capacity() => self.cursor = 0,
                _ => self.cursor += 1,
            }
        }
    }

    /// Waits until a request ends, and takes out all that have ended by then. Returns an empty list if the set is
    /// empty.
    pub fn wait_some(&mut self) -> Vec<End<T>> {
        let mut ends: Vec<_> = self.wait_any().into_iter().collect();
        ends.extend(std::iter::from_fn(|| self.take()));
        ends
    }

    /// Waits until all requests have ended, and takes them out, in the order of their ends.
    pub fn wait_all(&mut self) -> Vec<End<T>> {
        std::iter::from_fn(|| self.wait_any()).collect()
    }

    /// Makes progress, and takes out a request that has ended, if there is one.
    ///
    /// # Errors
    /// Those of the runtime itself: [`Error::Closed`], [`Error::Forked`], [`Error::Port`], [`Error::Condemned`].
    pub fn test_any(&mut self) -> Result<Option<End<T>>, Error> {
        self.comm.runtime.drive()?;
        Ok(self.take())
    }

    /// Makes progress, and takes out all requests that have ended.
    ///
    /// # Errors
    /// As [`RequestSet::test_any`].
    pub fn test_some(&mut self) -> Result<Vec<End<T>>, Error> {
        self.comm.runtime.drive()?;
        Ok(std::iter::from_fn(|| self.take()).collect())
    }

    /// Takes a request out that has ended already.
    fn take(&mut self) -> Option<End<T>> {
        if let Some(key) = self.ended.pop() {
            return Some(self.end(key, None));
        }
        let (id, key) = self.comm.runtime.take_end(self.watcher).ok()??;
        let completion = self.comm.runtime.finish(id, &mut (), &self.comm.bounds);
        Some(self.end(key as usize, completion))
    }

    fn end(&mut self, key: usize, completion: Option<Completion>) -> End<T> {
        match self.entries.remove(key) {
            Entry::UnderWay(_) => (key, result_of(completion)),
            Entry::Ended(completion) => (key, result_of(completion.map(|boxed| *boxed))),
        }
    }

    /// Takes a request out before its end. The request continues.
    pub fn remove(&mut self, key: usize) -> Option<Request<T>> {
        let (id, completion) = match self.entries.try_remove(key)? {
            Entry::UnderWay(id) => {
                if let Ok(mut call) = self.comm.runtime.enter(&self.comm.bounds) {
                    call.start(|engine, _, _| engine.unwatch(id));
                }
                (Some(id), None)
            }
            Entry::Ended(completion) => {
                self.ended.retain(|ended| *ended != key);
                (None, completion.map(|boxed| *boxed))
            }
        };
        Some(Request { comm: self.comm.clone(), id, completion, element: PhantomData })
    }

    /// Cancels a request, as [`Request::cancel`].
    pub fn cancel(&mut self, key: usize) {
        if let Some(&Entry::UnderWay(id)) = self.entries.get(key)
            && let Ok(mut call) = self.comm.runtime.enter(&self.comm.bounds)
        {
            call.start(|engine, _, _| engine.cancel(id));
        }
    }
}

impl<T: Element> Drop for RequestSet<T> {
    fn drop(&mut self) {
        for (_, entry) in &self.entries {
            if let Entry::UnderWay(id) = entry {
                self.comm.runtime.forget(*id);
            }
        }
        if let Ok(mut call) = self.comm.runtime.enter(&self.comm.bounds) {
            let watcher = self.watcher;
            call.start(|engine, _, _| engine.remove_watcher(watcher));
        }
    }
}

/// A wait for the request of a watcher that ends first.
struct Watched {
    watcher: u32,
    /// The key of the awaited request.
    key: usize,
}

impl Group for Watched {
    #[inline]
    fn first<P: Port>(&mut self, engine: &mut Engine<P>) -> Option<RequestId> {
        let (id, key) = engine.take_end(self.watcher)?;
        self.key = key as usize;
        Some(id)
    }
}

impl Lent for Watched {
    fn read(&self, _: RequestId, _: u32) -> Option<&[u8]> {
        None
    }
    fn write(&mut self, _: RequestId, _: u32) -> Option<&mut [u8]> {
        None
    }
    fn received(&mut self, _: RequestId, _: u32, _: Status) {}
}
