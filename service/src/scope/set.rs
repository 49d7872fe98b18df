//! Sets of operations of a scope, whose results are taken one by one.

use samite_p2p::Outcome;

use super::{Awaited, Ends, Kind, Loan, Pending, Scope};
use crate::members::{Member, Members};
use crate::runtime::Completion;
use crate::stack::Engine;
use crate::{CancelToken, Error, Status};

/// Operations of a scope, whose results the caller takes in the order in which they end: a
/// [`RequestSet`](crate::RequestSet) for borrowed buffers.
///
/// Taking a result costs the same for any number of operations. The operations of a dropped set continue; the end of
/// the scope waits for them.
///
/// ```
/// # samite::local(3, |world| -> Result<(), samite::Error> {
/// # let comm = world.comm();
/// let (mine, mut theirs) = ([comm.rank().0], [[9u32; 1]; 3]);
/// comm.scope(|scope| {
///     let mut receives = samite::PendingSet::default();
///     for (from, buffer) in (0..).map(samite::Rank).zip(&mut theirs) {
///         receives.insert(scope.irecv(buffer, from, 7)?);
///     }
///     for to in (0..3).map(samite::Rank) {
///         scope.isend(&mine, to, 7)?;
///     }
///     while let Some((_key, received)) = scope.wait_any(&mut receives) {
///         received?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(theirs, [[0], [1], [2]]);
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Default)]
pub struct PendingSet<'scope> {
    /// The set's number in the scope. `None` before the first wait or test.
    number: Option<usize>,
    members: Members<Pending<'scope>, Result<Status, Error>>,
    /// Keys of operations whose ends the engine does not report to the set yet.
    added: Vec<usize>,
}

/// The key of an operation in a set, and its result.
type End = (usize, Result<Status, Error>);

impl<'scope> PendingSet<'scope> {
    /// Adds an operation, and returns its key in the set. A key is reused once its operation was taken out.
    pub fn insert(&mut self, operation: Pending<'scope>) -> usize {
        let member = match operation.0 {
            Kind::Ended(status) => Member::Ended(Ok(status)),
            Kind::Failed => Member::Ended(Err(Error::NoSuchRequest)),
            Kind::UnderWay { .. } => Member::UnderWay(operation),
        };
        let is_under_way = matches!(member, Member::UnderWay(_));
        let key = self.members.insert(member);
        if is_under_way {
            self.added.push(key);
        }
        key
    }

    /// Returns an operation under way, for [`Scope::cancel`].
    #[must_use]
    pub fn get(&self, key: usize) -> Option<&Pending<'scope>> {
        self.members.under_way(key)
    }

    /// Returns the number of operations in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns true if no operation is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.len() == 0
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Waits until an operation of the set ends, and takes it out. Returns its key, and the result that
    /// [`wait`](Self::wait) would have returned. Returns `None` if the set is empty.
    #[must_use = "a result is returned once"]
    pub fn wait_any(&mut self, set: &mut PendingSet<'scope>) -> Option<End> {
        self.next("Scope::wait_any", set)
    }

    /// Waits as [`wait_any`](Self::wait_any) does. `call` is the name of the public call.
    #[inline]
    fn next(&mut self, call: &'static str, set: &mut PendingSet<'scope>) -> Option<End> {
        if let Some(key) = set.members.pop_ended() {
            return Some(self.take_out(call, set, key, None));
        }
        let number = self.follow(set);
        if let Some((_, key)) = self.loans.take_end(number) {
            return Some(self.take_out(call, set, key as usize, None));
        }
        let (key, operation) = set.members.some_under_way()?;
        let Kind::UnderWay { request, .. } = operation.0 else { return None };
        let completion = self.finish(request, Awaited::Set(number), key);
        Some(self.take_out(call, set, self.loans.found, completion))
    }

    /// Waits until an operation of the set ends, and takes out all that have ended by then. Returns an empty list if
    /// the set is empty.
    #[must_use = "a result is returned once"]
    pub fn wait_some(&mut self, set: &mut PendingSet<'scope>) -> Vec<End> {
        let call = "Scope::wait_some";
        let mut ends: Vec<_> = self.next(call, set).into_iter().collect();
        ends.extend(std::iter::from_fn(|| self.take_ended(call, set, true)));
        ends
    }

    /// Waits until all operations of the set have ended, and takes them out, in the order of their ends.
    #[must_use = "a result is returned once"]
    pub fn wait_all(&mut self, set: &mut PendingSet<'scope>) -> Vec<End> {
        std::iter::from_fn(|| self.next("Scope::wait_all", set)).collect()
    }

    /// Makes progress, and takes out of the set an operation that has ended, if there is one: see
    /// [`wait_any`](Self::wait_any). An error of the runtime itself ([`Error::Closed`], [`Error::Forked`],
    /// [`Error::Transport`], [`Error::Condemned`]) becomes the result of one of the operations.
    #[must_use = "a result is returned once"]
    pub fn test_any(&mut self, set: &mut PendingSet<'scope>) -> Option<End> {
        self.drive_and_take("Scope::test_any", set)
    }

    fn drive_and_take(&mut self, call: &'static str, set: &mut PendingSet<'scope>) -> Option<End> {
        let driven = self.drive(set);
        self.take_ended(call, set, false).or_else(|| self.take_failed(call, set, driven.err()?))
    }

    /// Makes progress, and takes out of the set all operations that have ended: see [`test_any`](Self::test_any).
    #[must_use = "a result is returned once"]
    pub fn test_some(&mut self, set: &mut PendingSet<'scope>) -> Vec<End> {
        let call = "Scope::test_some";
        let mut ends: Vec<_> = self.drive_and_take(call, set).into_iter().collect();
        ends.extend(std::iter::from_fn(|| self.take_ended(call, set, false)));
        ends
    }

    /// Makes progress, and takes all operations out of the set if all have ended, in the order of their ends. Otherwise
    /// takes out none, and returns `None` (`MPI_Testall`). An empty set returns an empty list. A receive from any
    /// source that must report a failure counts as ended. After an error of the runtime itself (see
    /// [`test_any`](Self::test_any)) all operations are taken out, and the error is the result of each that has not
    /// ended.
    #[must_use = "a result is returned once"]
    pub fn test_all(&mut self, set: &mut PendingSet<'scope>) -> Option<Vec<End>> {
        let call = "Scope::test_all";
        let driven = self.drive(set);
        let loans = &self.loans;
        let look = |engine: &Engine<_>| {
            set.members.have_all_ended(|Pending(kind, _)| match *kind {
                Kind::UnderWay { request, place } => {
                    matches!(loans.all.get(place as usize), Some(Loan::Ended(..)))
                        || engine.outcome(request) != Outcome::Pending
                }
                _ => true,
            })
        };
        match driven.and_then(|()| self.comm.runtime.peek(look)) {
            Ok(false) => None,
            Ok(true) => Some(std::iter::from_fn(|| self.take_ended(call, set, false)).collect()),
            Err(error) => {
                let mut take = || {
                    let ended = self.take_ended(call, set, false);
                    ended.or_else(|| self.take_failed(call, set, error.clone()))
                };
                Some(std::iter::from_fn(&mut take).collect())
            }
        }
    }

    /// Drives once for a set. If the cancel token of the scope was cancelled, cancels an operation of the set first.
    fn drive(&mut self, set: &mut PendingSet<'scope>) -> Result<(), Error> {
        self.follow(set);
        if self.comm.bounds.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
            && let Some((_, operation)) = set.members.some_under_way()
            && let Kind::UnderWay { request, .. } = operation.0
        {
            self.comm.runtime.cancel_all([request]);
        }
        self.comm.runtime.drive(&mut self.loans)
    }

    /// Takes out an operation, with an error of the runtime as its result: after such an error it can make no progress.
    fn take_failed(&mut self, call: &'static str, set: &mut PendingSet<'scope>, error: Error) -> Option<End> {
        let (key, operation) = set.members.some_under_way()?;
        let Kind::UnderWay { request, .. } = operation.0 else { return None };
        self.comm.runtime.forget(request);
        Some(self.take_out(call, set, key, Some(Completion { result: Err(error), memory: None })))
    }

    /// Asks the engine to report the ends of the operations that were added to the set since the last call. Returns the
    /// set's number.
    fn follow(&mut self, set: &mut PendingSet<'scope>) -> usize {
        let runtime = &self.comm.runtime;
        let number = *set.number.get_or_insert_with(|| {
            self.loans.sets.push(Ends { watcher: runtime.add_watcher(), ..Ends::default() });
            self.loans.sets.len() - 1
        });
        for key in set.added.drain(..) {
            let Some(&Pending(Kind::UnderWay { request, place }, _)) = set.members.under_way(key) else {
                continue;
            };
            // There are fewer than 2^32 requests.
            let (member, index) = ((number, key as u32), place as usize);
            if let Some(Loan::Ended(..)) = self.loans.all.get(index) {
                self.loans.sets[number].ended.push_back((request, member.1));
                continue;
            }
            if self.loans.members.len() <= index {
                self.loans.members.resize(index + 1, None);
            }
            self.loans.members[index] = Some(member);
            runtime.watch(request, self.loans.sets[number].watcher, member.1);
        }
        number
    }

    /// Takes out an operation of a set that has ended already. If `explains` is true, this call may wait for the
    /// launcher's report of why a peer failed.
    fn take_ended(
        &mut self,
        call: &'static str,
        set: &mut PendingSet<'scope>,
        explains: bool,
    ) -> Option<End> {
        if let Some(key) = set.members.pop_ended() {
            return Some(self.take_out(call, set, key, None));
        }
        let number = self.follow(set);
        if let Some((_, key)) = self.loans.take_end(number) {
            return Some(self.take_out(call, set, key as usize, None));
        }
        let explained = explains.then_some(&self.comm.bounds);
        let watcher = self.loans.sets[number].watcher;
        let (key, completion) = self.comm.runtime.take_end(watcher, &mut self.loans, explained)?;
        Some(self.take_out(call, set, key as usize, completion))
    }

    /// Takes out an operation that has ended. `completion` is its result, or `None` if the result is in the loan.
    fn take_out(
        &mut self,
        call: &'static str,
        set: &mut PendingSet<'scope>,
        key: usize,
        completion: Option<Completion>,
    ) -> End {
        let result = match set.members.remove(key) {
            Some(Member::Ended(result)) => result,
            Some(Member::UnderWay(Pending(Kind::UnderWay { place, .. }, _))) => self.end(place, completion),
            _ => Err(Error::NoSuchRequest),
        };
        (key, self.comm.handle_result(call, result))
    }
}
