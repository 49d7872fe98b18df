//! The table: each public call in one line, with its partner's part and its kind, which determines the permitted
//! results in each situation.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use samite::reduction::Max;
use samite::{
    Attribute, CancelToken, Cartesian, Cause, Comm, Dimension, Error, ErrorHandler, Hints, InPlace, Layout,
    Locality, Mode, Neighbourhood, Owned, PartitionedRecv, PartitionedSend, PendingSet, Persistent,
    PersistentCollective, PersistentRecv, PersistentSend, Rank, Request, RequestSet, Scope, Source, Status,
    ValueRequest, WindowError, WindowHints, WindowOp, start_all,
};

use crate::windows::{
    accesses, all_locked, attaches, backwards, elements, exposed, fences, fences_twice, has_a_window,
    has_an_allocated_window, in_a_fence, in_an_access, is_exposed, locked, made, sliced, sliced_between,
    viewed,
};

/// The rank that all calls address.
pub(crate) const PEER: Rank = Rank(1);

/// The tag of no message.
pub(crate) const NEVER: u64 = 1;
/// The tag of the messages that the peer begins to send before the situation arises.
pub(crate) const GIVEN: u64 = 2;
/// The tag of the messages by which the calls of the table succeed.
const TAG: u64 = 3;
/// The tag of messages that a rank sends to itself and does not receive.
const UNWANTED: u64 = 4;

/// The length of a message that cannot be sent completely without its receiver's help.
const LONG: usize = 1 << 20;

/// The largest length of an encoded value: `LONG` bytes, and their number.
const VALUE_MAX: usize = LONG + 10;

/// A message whose bytes are sent with its envelope.
const SHORT: [u8; 8] = [7; 8];

/// One call, or several calls that have one result. `name` is the name in `ci/api/samite.txt`, with a word that
/// distinguishes variants.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Starts the part that must be under way before the situation arises, and returns the rest.
    pub(crate) begin: fn(&Comm) -> Rest,
    /// The peer's part, with which the call succeeds.
    pub(crate) partner: fn(&Comm) -> Result<(), Error>,
}

impl Call {
    /// Returns true if the call succeeds when the peer does its part. A call whose name ends with `itself` is an
    /// exchange in which the rank also receives from itself or sends to itself. Nothing matches that send or receive,
    /// so the exchange never succeeds.
    pub(crate) fn can_succeed(&self) -> bool {
        !self.name.ends_with("itself")
    }
}

pub(crate) type Rest = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// The way in which a call depends on its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Waits for the peer, and fails with it.
    Waits,
    /// Waits for any rank.
    WaitsForAny,
    /// Receives a message that the peer has begun to send.
    Claimed,
    /// Checks, and does not wait.
    Looks,
    /// Waits for the peer's next incarnation.
    Returns,
    /// Asks the runtime about the peer.
    Asks,
    /// Waits for the peer, and succeeds without it if it has failed or left.
    Survives,
    /// Waits with a token that is cancelled.
    Cancelled,
    /// Waits with a time limit that has passed.
    Bounded,
    /// Depends on no peer.
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// The peer does its part of the exchange. This situation is tested several times: while another thread drives the
    /// engine, in a scope, and beside another World.
    Alive,
    Dead,
    Left,
    /// The peer is stopped by SIGSTOP, and the calls have a time-out.
    Stopped,
    /// The World was dropped.
    Closed,
    /// The call is made in a child of fork(2).
    Forked,
}

impl Kind {
    /// Returns true if a call of this kind may have this result.
    pub(crate) fn allows(self, situation: Situation, end: &Result<(), Error>) -> bool {
        use Situation as S;
        let is_peer = |rank: &Rank| *rank == PEER;
        let is_of_end = |cause: &Cause| match situation {
            // The end of the connection may become known before the launcher's report, and a call with a bound does not
            // wait for that report.
            S::Dead => matches!(cause, Cause::Died(_) | Cause::Lost),
            _ => matches!(cause, Cause::Left),
        };
        match (self, situation, end) {
            (Self::Local, _, end) => end.is_ok(),
            (_, S::Closed, end) => matches!(end, Err(Error::Closed { .. })),
            (_, S::Forked, end) => *end == Err(Error::Forked),

            (Self::Bounded, _, Err(Error::TimedOut { .. })) => true,
            (Self::Cancelled, _, Err(Error::Cancelled { .. })) => true,
            // The calls to a stopped peer have a time-out. It may pass before the scheduler runs the thread of this
            // call, because there are many threads.
            (Self::Cancelled, S::Stopped, Err(Error::TimedOut { .. })) => true,
            (Self::Bounded | Self::Cancelled, S::Alive | S::Stopped, _) => false,
            (_, S::Alive, end) => end.is_ok(),

            (Self::Looks | Self::Asks, S::Stopped, end) => end.is_ok(),
            (Self::Asks, _, end) => end.is_ok(),
            (Self::Survives, S::Dead | S::Left, end) => end.is_ok(),
            // Such a call returns at once if its peer is present, and otherwise waits until its deadline.
            (Self::Returns, _, Ok(()) | Err(Error::TimedOut { .. })) => true,
            (_, S::Stopped, Err(Error::Window(why))) => matches!(**why, WindowError::TimedOut { .. }),
            (_, S::Stopped, end) => matches!(end, Err(Error::TimedOut { .. })),

            (Self::WaitsForAny, _, Err(Error::Deserted)) => true,
            (Self::WaitsForAny, _, Err(Error::FailurePending { rank, .. })) => is_peer(rank),
            (Self::Claimed, S::Left, Err(Error::Abandoned { rank, .. })) => is_peer(rank),
            (_, _, Err(Error::PeerFailed { rank, cause, .. })) => is_peer(rank) && is_of_end(cause),
            _ => false,
        }
    }
}

/// An attribute of a communicator.
struct Mark;

impl Attribute for Mark {}

/// All bytes are 1, so that a message of them can also be received as values of `bool`.
fn long() -> Vec<u8> {
    vec![1_u8; LONG]
}

fn nothing(_: &Comm) -> Result<(), Error> {
    Ok(())
}

fn takes(comm: &Comm) -> Result<(), Error> {
    comm.recv(&mut long(), Rank(0), TAG).map(drop)
}

fn gives(comm: &Comm) -> Result<(), Error> {
    comm.send(&long(), Rank(0), TAG)
}

fn gives_value(comm: &Comm) -> Result<(), Error> {
    comm.send_value(&long(), Rank(0), TAG)
}

fn takes_value(comm: &Comm) -> Result<(), Error> {
    comm.recv_value::<Vec<u8>>(VALUE_MAX, Rank(0), TAG).map(drop)
}

fn gives_before(comm: &Comm) -> Result<(), Error> {
    comm.send(&long(), Rank(0), GIVEN)
}

fn exchanges(comm: &Comm) -> Result<(), Error> {
    comm.sendrecv(&long(), Rank(0), TAG, &mut long(), Rank(0), TAG).map(drop)
}

fn takes_parts(comm: &Comm) -> Result<(), Error> {
    let mut recv = comm.precv_init(long(), 4, Rank(0), TAG)?;
    recv.start()?;
    recv.wait().map(drop)
}

fn gives_parts(comm: &Comm) -> Result<(), Error> {
    let mut send = comm.psend_init(long(), 2, Rank(0), TAG)?;
    send.start()?;
    send.ready(0..2)?;
    send.wait().map(drop)
}

/// Initializes a partitioned send to the peer, and begins a round.
fn in_parts(comm: &Comm, tag: u64) -> Result<PartitionedSend<u8>, Error> {
    let mut send = comm.psend_init(long(), 4, PEER, tag)?;
    send.start()?;
    Ok(send)
}

/// Initializes a partitioned receive from the peer, and begins a round.
fn of_parts(comm: &Comm, tag: u64) -> Result<PartitionedRecv<u8>, Error> {
    let mut recv = comm.precv_init(long(), 2, PEER, tag)?;
    recv.start()?;
    Ok(recv)
}

/// Returns the rest of a call that depends on no peer, on an object that was made before: a partitioned send or receive
/// outside of rounds, or a window. The rest does nothing if the object could not be made.
fn idle<T: Send + 'static, E: Send + 'static>(half: Result<T, E>, call: fn(T)) -> Rest {
    Box::new(move || {
        let _ = half.map(call);
        Ok(())
    })
}

/// Writes to the other rank's part of a window.
fn shares_a_window(comm: &Comm) -> Result<(), Error> {
    let window = comm.window(long())?;
    let epoch = window.fence()?;
    epoch.put(Rank(1 - comm.rank().0), 0, &long())?;
    epoch.close()?;
    window.free().map(drop)
}

/// Writes to the other rank's part of a window that is allocated.
fn allocates_a_window(comm: &Comm) -> Result<(), Error> {
    let window = comm.allocate_window(LONG)?;
    let epoch = window.fence()?;
    epoch.put(Rank(1 - comm.rank().0), 0, &long())?;
    epoch.close()?;
    window.free().map(drop)
}

/// Writes to memory that the other rank has attached.
fn attaches_memory(comm: &Comm) -> Result<(), Error> {
    attaches(comm.dynamic_window()?)
}

fn has_a_dynamic_window(comm: &Comm) -> Result<(), Error> {
    comm.dynamic_window::<u64>()?.free().map(drop)
}

fn meets_all(comm: &Comm) -> Result<(), Error> {
    comm.barrier()
}

fn broadcasts(comm: &Comm) -> Result<(), Error> {
    comm.bcast(&mut long(), PEER)
}

fn gathers(comm: &Comm) -> Result<(), Error> {
    comm.gather(&long(), &mut [], Rank(0))
}

fn is_given_a_block(comm: &Comm) -> Result<(), Error> {
    comm.scatter(&[], &mut long(), Rank(0))
}

fn exchanges_blocks(comm: &Comm) -> Result<(), Error> {
    comm.alltoall_in_place(&mut long())
}

fn reduces(comm: &Comm) -> Result<(), Error> {
    comm.reduce(&long(), &mut [], Max, Rank(0))
}

fn scans(comm: &Comm) -> Result<(), Error> {
    comm.scan_in_place(&mut long(), Max)
}

fn scans_before(comm: &Comm) -> Result<(), Error> {
    comm.exscan_in_place(&mut long(), Max)
}

/// Returns the index ranges of the two halves of a slice of `len` elements.
fn halves(len: usize) -> [std::ops::Range<usize>; 2] {
    [0..len / 2, len / 2..len]
}

fn gathers_blocks(comm: &Comm) -> Result<(), Error> {
    comm.gatherv(&long(), &mut [], &[], Rank(0))
}

fn is_given_some_block(comm: &Comm) -> Result<(), Error> {
    comm.scatterv(&[], &[], &mut long(), Rank(0))
}

fn allgathers_blocks(comm: &Comm) -> Result<(), Error> {
    comm.allgatherv_in_place(&mut long(), &halves(LONG))
}

fn exchanges_some_blocks(comm: &Comm) -> Result<(), Error> {
    comm.alltoallv_in_place(&mut long(), &halves(LONG))
}

/// Returns the neighbourhood of two ranks in a line.
fn line(comm: &Comm) -> Neighbourhood {
    let line = Cartesian::new(&[Dimension::open(2)]).unwrap();
    line.neighbourhood(comm.rank()).unwrap()
}

/// Returns the two halves of a slice of `LONG` elements, in the order of neighbours in a [`line`], of which one exists.
fn side(comm: &Comm) -> [std::ops::Range<usize>; 2] {
    if comm.rank() == 0 { [0..0, 0..LONG] } else { [0..LONG, 0..0] }
}

fn layouts(blocks: [std::ops::Range<usize>; 2]) -> [Layout<u8>; 2] {
    blocks.map(|block| Layout::indexed([(block.start as isize, block.len())]).unwrap())
}

fn gathers_from_neighbours(comm: &Comm) -> Result<(), Error> {
    comm.neighbour_allgather(&line(comm), &long(), &mut [long(), long()].concat())
}

fn exchanges_with_neighbours(comm: &Comm) -> Result<(), Error> {
    let two = || [long(), long()].concat();
    comm.neighbour_alltoall(&line(comm), &two(), &mut two())
}

fn exchanges_layouts(comm: &Comm) -> Result<(), Error> {
    comm.alltoallw_in_place(&mut long(), &layouts(halves(LONG)))
}

fn scatters_reduced_blocks(comm: &Comm) -> Result<(), Error> {
    comm.reduce_scatterv(&long(), &mut long()[LONG / 2..], &[LONG / 2; 2], Max)
}

fn allgathers(comm: &Comm) -> Result<(), Error> {
    comm.allgather(&long(), &mut [long(), long()].concat())
}

fn allreduces(comm: &Comm) -> Result<(), Error> {
    comm.allreduce_in_place(&mut long(), Max)
}

/// Takes part in an allreduce that the other rank cancels.
fn allreduces_in_vain(comm: &Comm) -> Result<(), Error> {
    match allreduces(comm) {
        Err(Error::Abandoned { rank: Rank(0), .. }) => Ok(()),
        end => Err(end.err().unwrap_or(Error::Inactive)),
    }
}

fn scatters_reduced(comm: &Comm) -> Result<(), Error> {
    comm.reduce_scatter_in_place(&mut long(), Max)
}

fn agrees(comm: &Comm) -> Result<(), Error> {
    comm.agree(1).map(|agreement| assert_eq!(agreement.flags, 1))
}

fn shrinks(comm: &Comm) -> Result<(), Error> {
    comm.shrink().map(drop)
}

fn duplicates(comm: &Comm) -> Result<(), Error> {
    comm.dup().map(drop)
}

fn splits(comm: &Comm) -> Result<(), Error> {
    comm.split(Some(1), 0).map(drop)
}

fn splits_by_host(comm: &Comm) -> Result<(), Error> {
    comm.split_by(Locality::Host, 0).map(drop)
}

fn creates(comm: &Comm) -> Result<(), Error> {
    comm.create_from_group(&comm.group(), 0).map(drop)
}

/// Creates an intercommunicator between the two ranks.
fn both(comm: &Comm) -> Result<Comm, Error> {
    comm.self_comm()?.create_intercomm(Rank(0), comm, Rank(1 - comm.rank().0), 0)
}

fn meets(comm: &Comm) -> Result<(), Error> {
    both(comm).map(drop)
}

fn merges(comm: &Comm) -> Result<(), Error> {
    both(comm)?.merge(false).map(drop)
}

/// Returns the layout of every second byte: a message of `LONG` bytes.
fn scattered() -> Layout<u8> {
    Layout::vector(LONG, 1, 2).expect("it is short")
}

/// Returns the whole call as its rest, for a call of which no part is under way before the situation arises.
fn whole(comm: &Comm, call: fn(&Comm) -> Result<(), Error>) -> Rest {
    let comm = comm.clone();
    Box::new(move || call(&comm))
}

/// Returns the whole call as its rest, as [`whole`] does, for a call that cannot fail.
fn local(comm: &Comm, call: fn(&Comm)) -> Rest {
    let comm = comm.clone();
    Box::new(move || {
        call(&comm);
        Ok(())
    })
}

/// Returns the rest of a call on an operation that was started before. If the start failed, the rest returns its error.
fn held<T: Send + 'static>(begun: Result<T, impl Into<Error>>, rest: fn(T) -> Result<(), Error>) -> Rest {
    let begun = begun.map_err(Into::into);
    Box::new(move || rest(begun?))
}

/// Replaces one error by success: the message was received, but its bytes are not the encoding of a value.
fn received(end: Result<(bool, Status), Error>) -> Result<(), Error> {
    match end {
        Err(Error::Undecodable { .. }) => Ok(()),
        end => end.map(drop),
    }
}

/// Starts to receive a value of the peer.
fn value(comm: &Comm, tag: u64) -> Result<ValueRequest<Vec<u8>>, Error> {
    comm.irecv_value(VALUE_MAX, PEER, tag)
}

/// Awaits a future in this thread.
fn block_on<F: IntoFuture>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Starts the persistent operation `operation`, and returns the result that `end` gets.
fn round<O: Persistent, R>(mut operation: O, end: fn(&mut O) -> Result<R, Error>) -> Result<(), Error> {
    start_all(&mut [&mut operation])?;
    end(&mut operation).map(drop)
}

/// Prepares an allreduce in place.
fn summing(comm: &Comm) -> Result<PersistentCollective<InPlace, Vec<u8>>, Error> {
    comm.allreduce_init(InPlace, long(), Max)
}

/// Starts the persistent operation in `made`, or returns the error with which its creation failed.
fn started<O: Persistent>(made: Result<O, Error>) -> Result<O, Error> {
    let mut operation = made?;
    start_all(&mut [&mut operation])?;
    Ok(operation)
}

/// Returns a set with one receive.
fn set(comm: &Comm, from: impl Into<Source>, tag: u64) -> Result<RequestSet<Vec<u8>>, Error> {
    Ok(set_of(comm, comm.irecv(long(), from, tag)?))
}

/// Returns a set with this request.
fn set_of<B: Owned>(comm: &Comm, request: Request<B>) -> RequestSet<B> {
    let mut set = comm.request_set();
    let Ok(0) = set.insert(request) else { panic!("it is of this world, and the first") };
    set
}

/// Returns the first result in a set.
fn first<B>(
    ends: impl IntoIterator<Item = (usize, Result<samite::Done<B>, samite::Failed<B>>)>,
) -> Result<(), Error> {
    let (key, result) = ends.into_iter().next().expect("one has ended");
    assert_eq!(key, 0);
    Ok(result.map(drop)?)
}

/// Receives into a borrowed buffer, in a set of a scope. `take` takes the results of the set.
fn scoped(
    comm: &Comm,
    from: impl Into<Source>,
    tag: u64,
    take: impl for<'scope> Fn(&mut Scope<'scope, '_>, &mut PendingSet<'scope>) -> Result<Vec<ScopeEnd>, Error>,
) -> Result<(), Error> {
    let mut buffer = long();
    comm.scope(|scope| {
        let mut set = PendingSet::default();
        assert_eq!(set.insert(scope.irecv(&mut buffer, from, tag)?), 0);
        let (key, result) = loop {
            if let Some(end) = take(scope, &mut set)?.pop() {
                break end;
            }
        };
        assert_eq!(key, 0);
        result.map(drop)
    })
}

type ScopeEnd = (usize, Result<samite::Status, Error>);

macro_rules! calls {
    ($($name:literal, $kind:ident, $partner:ident, |$comm:ident| $begin:expr;)+) => {
        pub(crate) const CALLS: &[Call] = &[
            $(Call { name: $name, kind: Kind::$kind, begin: |$comm| $begin, partner: $partner }),+
        ];
    };
}

calls! {
    "Comm::send", Waits, takes, |c| whole(c, |c| c.send(&long(), PEER, TAG));
    "Comm::send to none", Asks, nothing, |c| whole(c, |c| c.send(&long(), None, TAG));
    "Comm::with_mode", Waits, takes, |c| whole(c, |c| c.with_mode(Mode::Synchronous).send(&SHORT, PEER, TAG));
    "Comm::with_mode of an isend", Waits, takes, |c| {
        held(c.with_mode(Mode::Synchronous).isend(SHORT.to_vec(), PEER, TAG), |r| Ok(r.wait().map(drop)?))
    };
    "Comm::with_mode of a scope", Waits, takes, |c| whole(c, |c| {
        c.with_mode(Mode::Synchronous).scope(|scope| scope.isend(&SHORT, PEER, TAG).map(drop))
    });
    "Comm::with_mode of a persistent send", Waits, takes, |c| {
        let made = c.with_mode(Mode::Synchronous).send_init(SHORT.to_vec(), PEER, TAG);
        held(started(made), |mut s| s.wait().map(drop))
    };
    "Comm::with_mode of a ready send", Waits, takes, |c| whole(c, |c| {
        c.with_mode(Mode::Ready).send(&long(), PEER, TAG)
    });
    // The result depends on the reports of ends that have arrived. The call does not wait for such reports.
    "Comm::with_error_handler", Waits, takes, |c| whole(c, |c| {
        // The handler takes the engine's lock, which the failed call must not hold.
        let handled = c.with_error_handler(ErrorHandler::call(|raised| drop(raised.comm.stats())));
        handled.with_mode(Mode::Synchronous).send(&SHORT, PEER, TAG)
    });
    "Comm::error_handler", Local, nothing, |c| local(c, |c| drop(c.error_handler()));
    "Comm::call_error_handler", Local, nothing, |c| local(c, |c| c.call_error_handler("call", &Error::Inactive));
    "Comm::with_buffer", Local, nothing, |c| local(c, |c| {
        _ = c.with_buffer(LONG).with_mode(Mode::Buffered).send(&SHORT, PEER, UNWANTED);
    });
    "Comm::flush_buffer", Asks, nothing, |c| whole(c, |c| c.with_buffer(LONG).flush_buffer());
    "Comm::flush_buffer of an unreceived message", Bounded, nothing, |c| whole(c, |c| {
        let comm = c.with_buffer(2 * LONG).with_mode(Mode::Buffered).with_timeout(Duration::from_millis(1));
        comm.send(&long(), Rank(0), UNWANTED)?;
        comm.flush_buffer()
    });
    "Comm::recv", Waits, gives, |c| whole(c, |c| c.recv(&mut long(), PEER, TAG).map(drop));
    "Comm::recv_checked", Waits, gives, |c| whole(c, |c| c.recv_checked(&mut [false; LONG], PEER, TAG).map(drop));
    "Comm::recv from any", WaitsForAny, gives, |c| whole(c, |c| c.recv(&mut long(), Source::ANY, TAG).map(drop));
    "Comm::recv from none", Asks, nothing, |c| whole(c, |c| c.recv(&mut long(), None, TAG).map(drop));
    "Comm::recv_vec", Waits, gives, |c| whole(c, |c| c.recv_vec::<u8>(PEER, TAG).map(drop));
    "Comm::send_value", Waits, takes_value, |c| whole(c, |c| c.send_value(&long(), PEER, TAG));
    "Comm::isend_value", Waits, takes_value, |c| {
        held(c.isend_value(&long(), PEER, TAG), |r| Ok(r.wait().map(drop)?))
    };
    "Comm::recv_value", Waits, gives_value, |c| whole(c, |c| {
        c.recv_value::<Vec<u8>>(VALUE_MAX, PEER, TAG).map(drop)
    });
    "Comm::recv_value from any", WaitsForAny, gives_value, |c| whole(c, |c| {
        c.recv_value::<Vec<u8>>(VALUE_MAX, Source::ANY, TAG).map(drop)
    });
    "Comm::irecv_value", Waits, gives_value, |c| held(value(c, TAG), |r| r.wait().map(drop));
    "Message::recv_value", Claimed, gives_before, |c| {
        held(c.claim(PEER, GIVEN), |message| received(message.recv_value::<bool>(LONG)))
    };
    "Message::irecv_value", Claimed, gives_before, |c| {
        held(c.claim(PEER, GIVEN), |message| received(message.irecv_value::<bool>(LONG)?.wait()))
    };
    "ValueRequest::wait", Waits, gives_value, |c| held(value(c, TAG), |r| r.wait().map(drop));
    "ValueRequest::test", Waits, gives_value, |c| held(value(c, TAG), |mut r| {
        loop {
            if let Some(end) = r.test() {
                return end.map(drop);
            }
        }
    });
    "ValueRequest::is_finished", Waits, gives_value, |c| held(value(c, TAG), |r| {
        while !r.is_finished() {}
        r.wait().map(drop)
    });
    "ValueRequest::into_future", Waits, gives_value, |c| held(value(c, TAG), |r| block_on(r).map(drop));
    "ValueRequest::cancel", Cancelled, nothing, |c| held(value(c, NEVER), |r| {
        r.cancel();
        r.wait().map(drop)
    });
    "ValueFuture::cancel", Cancelled, nothing, |c| held(value(c, NEVER), |r| {
        let future = r.into_future();
        future.cancel();
        block_on(future).map(drop)
    });
    "Comm::sendrecv", Waits, exchanges, |c| whole(c, |c| {
        c.sendrecv(&long(), PEER, TAG, &mut long(), PEER, TAG).map(drop)
    });
    "Comm::sendrecv from itself", Waits, takes, |c| whole(c, |c| {
        c.sendrecv(&long(), PEER, TAG, &mut long(), Rank(0), NEVER).map(drop)
    });
    "Comm::sendrecv to itself", Waits, gives, |c| whole(c, |c| {
        c.sendrecv(&long(), Rank(0), UNWANTED, &mut long(), PEER, TAG).map(drop)
    });
    "Comm::sendrecv with a source alone", Waits, gives, |c| whole(c, |c| {
        c.sendrecv(&long(), None, TAG, &mut long(), PEER, TAG).map(drop)
    });
    "Comm::sendrecv_replace", Waits, exchanges, |c| whole(c, |c| {
        c.sendrecv_replace(&mut long(), PEER, TAG, PEER, TAG).map(drop)
    });
    "Comm::isendrecv", Waits, exchanges, |c| {
        held(c.isendrecv(long(), PEER, TAG, long(), PEER, TAG), |e| Ok(e.wait().map(drop)?))
    };
    "Comm::isendrecv_replace", Waits, exchanges, |c| {
        held(c.isendrecv_replace(long(), PEER, TAG, PEER, TAG), |e| Ok(e.wait().map(drop)?))
    };
    "Exchange::wait", Waits, takes, |c| {
        held(c.isendrecv(long(), PEER, TAG, long(), None, TAG), |e| Ok(e.wait().map(drop)?))
    };
    "Exchange::wait from itself", Waits, takes, |c| {
        held(c.isendrecv(long(), PEER, TAG, long(), Rank(0), NEVER), |e| Ok(e.wait().map(drop)?))
    };
    "Exchange::test", Waits, gives, |c| {
        held(c.isendrecv(long(), None, TAG, long(), PEER, TAG), |mut e| loop {
            if let Some(end) = e.test() {
                return Ok(end.map(drop)?);
            }
            std::thread::yield_now();
        })
    };
    "Exchange::cancel", Cancelled, nothing, |c| {
        held(c.isendrecv(long(), None, TAG, long(), PEER, NEVER), |e| {
            e.cancel();
            Ok(e.wait().map(drop)?)
        })
    };
    "Comm::isend", Waits, takes, |c| held(c.isend(long(), PEER, TAG), |r| Ok(r.wait().map(drop)?));
    "Comm::irecv", Waits, gives, |c| held(c.irecv(long(), PEER, TAG), |r| Ok(r.wait().map(drop)?));
    "Comm::irecv from none", Asks, nothing, |c| held(c.irecv(long(), None, TAG), |r| Ok(r.wait().map(drop)?));
    "Request::wait for any", WaitsForAny, gives, |c| {
        held(c.irecv(long(), Source::ANY, TAG), |r| Ok(r.wait().map(drop)?))
    };
    "Request::wait", Waits, gives, |c| held(c.irecv(long(), PEER, TAG), |r| Ok(r.wait().map(drop)?));
    "Request::into_any", Waits, gives, |c| {
        held(c.irecv(long(), PEER, TAG).map(samite::Request::into_any), |r| Ok(r.wait().map(drop)?))
    };
    "Request::operation", Local, nothing, |c| local(c, |c| {
        let request = c.recv_init(long(), PEER, TAG).unwrap().into_request();
        assert!(request.operation::<PersistentRecv<Vec<u8>>>().is_some());
    });
    "Request::is_finished", Waits, gives, |c| held(c.irecv(long(), PEER, TAG), |r| {
        while !r.is_finished() {}
        Ok(r.wait().map(drop)?)
    });
    "Request::on_end", Waits, gives, |c| held(c.irecv(long(), PEER, TAG), |r| {
        let (sender, ends) = channel();
        r.on_end(move |end| sender.send(end.map(drop)).expect("it is awaited"));
        Ok(ends.recv().expect("it is called")?)
    });
    "Request::into_future", Waits, gives, |c| {
        held(c.irecv(long(), PEER, TAG), |r| Ok(block_on(r).map(drop)?))
    };
    "Request::into_future of a send", Waits, takes, |c| {
        held(c.isend(long(), PEER, TAG), |r| Ok(block_on(r).map(drop)?))
    };
    "Request::into_future for any", WaitsForAny, gives, |c| {
        held(c.irecv(long(), Source::ANY, TAG), |r| Ok(block_on(r).map(drop)?))
    };
    "RequestFuture::cancel", Cancelled, nothing, |c| held(c.irecv(long(), PEER, NEVER), |r| {
        let future = r.into_future();
        future.cancel();
        Ok(block_on(future).map(drop)?)
    });
    "Request::test", Waits, gives, |c| held(c.irecv(long(), PEER, TAG), |mut r| {
        loop {
            if let Some(end) = r.test() {
                return Ok(end.map(drop)?);
            }
        }
    });
    "Request::cancel a receive", Cancelled, nothing, |c| held(c.irecv(long(), PEER, NEVER), |r| {
        r.cancel();
        Ok(r.wait().map(drop)?)
    });
    "Request::cancel a send", Cancelled, nothing, |c| held(c.isend(long(), PEER, NEVER), |r| {
        r.cancel();
        Ok(r.wait().map(drop)?)
    });
    "Comm::send_init", Waits, takes, |c| held(c.send_init(long(), PEER, TAG), |s| round(s, PersistentSend::wait));
    "Comm::recv_init", Waits, gives, |c| held(c.recv_init(long(), PEER, TAG), |r| round(r, PersistentRecv::wait));
    "Comm::recv_init from any", WaitsForAny, gives, |c| {
        held(c.recv_init(long(), Source::ANY, TAG), |r| round(r, PersistentRecv::wait))
    };
    "Comm::recv_init from none", Asks, nothing, |c| {
        held(c.recv_init(long(), None, TAG), |r| round(r, PersistentRecv::wait))
    };
    "PersistentSend::start", Waits, takes, |c| held(started(c.send_init(long(), PEER, TAG)), |mut s| {
        s.wait().map(drop)
    });
    "PersistentSend::wait", Waits, takes, |c| held(c.send_init(long(), PEER, TAG), |s| round(s, PersistentSend::wait));
    "PersistentSend::test", Waits, takes, |c| held(c.send_init(long(), PEER, TAG), |s| round(s, |s| loop {
        if let Some(end) = s.test() {
            return end;
        }
        std::thread::yield_now();
    }));
    "PersistentSend::cancel", Cancelled, nothing, |c| held(c.send_init(long(), PEER, NEVER), |s| round(s, |s| {
        s.cancel();
        s.wait()
    }));
    "PersistentRecv::start", Waits, gives, |c| held(started(c.recv_init(long(), PEER, TAG)), |mut r| {
        r.wait().map(drop)
    });
    "PersistentRecv::wait", Waits, gives, |c| held(c.recv_init(long(), PEER, TAG), |r| round(r, PersistentRecv::wait));
    "PersistentRecv::test", Waits, gives, |c| held(c.recv_init(long(), PEER, TAG), |r| round(r, |r| loop {
        if let Some(end) = r.test() {
            return end;
        }
        std::thread::yield_now();
    }));
    "PersistentRecv::cancel", Cancelled, nothing, |c| held(c.recv_init(long(), PEER, NEVER), |r| round(r, |r| {
        r.cancel();
        r.wait()
    }));
    "PersistentSend::buffer", Local, nothing, |c| local(c, |c| {
        assert_eq!(c.send_init(long(), PEER, TAG).unwrap().buffer().unwrap().len(), LONG);
    });
    "PersistentSend::buffer_mut", Local, nothing, |c| local(c, |c| {
        c.send_init(long(), PEER, TAG).unwrap().buffer_mut().unwrap().clear();
    });
    "PersistentSend::replace_buffer", Local, nothing, |c| local(c, |c| {
        let last = c.send_init(long(), PEER, TAG).unwrap().replace_buffer(vec![]);
        assert_eq!(last.unwrap().unwrap().len(), LONG);
    });
    "PersistentSend::is_active", Local, nothing, |c| local(c, |c| {
        assert!(!c.send_init(long(), PEER, TAG).unwrap().is_active());
    });
    "PersistentRecv::buffer", Local, nothing, |c| local(c, |c| {
        assert_eq!(c.recv_init(long(), PEER, TAG).unwrap().buffer().unwrap().len(), LONG);
    });
    "PersistentRecv::buffer_mut", Local, nothing, |c| local(c, |c| {
        c.recv_init(long(), PEER, TAG).unwrap().buffer_mut().unwrap().clear();
    });
    "PersistentRecv::replace_buffer", Local, nothing, |c| local(c, |c| {
        let last = c.recv_init(long(), PEER, TAG).unwrap().replace_buffer(vec![]);
        assert_eq!(last.unwrap().unwrap().len(), LONG);
    });
    "PersistentRecv::is_active", Local, nothing, |c| local(c, |c| {
        assert!(!c.recv_init(long(), PEER, TAG).unwrap().is_active());
    });
    "PersistentSend::into_request", Waits, takes, |c| held(started(c.send_init(long(), PEER, TAG)), |send| {
        Ok(send.into_request().wait().map(drop)?)
    });
    "PersistentRecv::into_request", Waits, gives, |c| held(started(c.recv_init(long(), PEER, TAG)), |recv| {
        Ok(recv.into_request().wait().map(drop)?)
    });
    "Comm::psend_init", Waits, takes_parts, |c| whole(c, |c| {
        let mut send = c.psend_init(long(), 4, PEER, TAG)?;
        send.start()?;
        send.ready(0..4)?;
        send.wait().map(drop)
    });
    "Comm::precv_init", Waits, gives_parts, |c| whole(c, |c| {
        let mut recv = c.precv_init(long(), 2, PEER, TAG)?;
        recv.start()?;
        recv.wait().map(drop)
    });
    "PartitionedSend::start", Waits, takes_parts, |c| held(c.psend_init(long(), 4, PEER, TAG), |mut send| {
        send.start()?;
        send.ready(0..4)?;
        send.wait().map(drop)
    });
    "PartitionedSend::part", Waits, takes_parts, |c| held(in_parts(c, TAG), |mut send| {
        send.part(3)?.ready();
        send.ready(0..3)?;
        send.wait().map(drop)
    });
    "PartitionedSend::parts", Waits, takes_parts, |c| held(in_parts(c, TAG), |mut send| {
        send.parts()?.for_each(samite::Part::ready);
        send.wait().map(drop)
    });
    "Part::ready", Waits, takes_parts, |c| held(in_parts(c, TAG), |mut send| {
        let parts: Vec<_> = send.parts()?.collect();
        parts.into_iter().rev().for_each(samite::Part::ready);
        send.wait().map(drop)
    });
    "Part::index", Local, nothing, |c| {
        let send = in_parts(c, UNWANTED);
        Box::new(move || {
            let _ = send.map(|send| assert_eq!(send.part(3).unwrap().index(), 3));
            Ok(())
        })
    };
    "PartitionedSend::ready", Waits, takes_parts, |c| held(in_parts(c, TAG), |mut send| {
        send.ready(1..4)?;
        send.ready(0..1)?;
        send.wait().map(drop)
    });
    "PartitionedSend::wait", Waits, takes_parts, |c| {
        let send = in_parts(c, TAG).and_then(|send| send.ready(0..4).map(|()| send));
        held(send, |mut send| send.wait().map(drop))
    };
    "PartitionedSend::test", Waits, takes_parts, |c| {
        let send = in_parts(c, TAG).and_then(|send| send.ready(0..4).map(|()| send));
        held(send, |mut send| loop {
            if let Some(end) = send.test() {
                return end.map(drop);
            }
            std::thread::yield_now();
        })
    };
    "PartitionedSend::cancel", Cancelled, nothing, |c| held(in_parts(c, NEVER), |mut send| {
        send.cancel();
        send.wait().map(drop)
    });
    "PartitionedSend::into_request", Waits, takes_parts, |c| {
        let send = in_parts(c, TAG).and_then(|send| send.ready(0..4).map(|()| send));
        held(send, |send| Ok(send.into_request().wait().map(drop)?))
    };
    "PartitionedSend::partitions", Local, nothing, |c| {
        idle(c.psend_init(long(), 4, PEER, UNWANTED), |send| assert_eq!(send.partitions(), 4))
    };
    "PartitionedSend::buffer_mut", Local, nothing, |c| {
        idle(c.psend_init(long(), 4, PEER, UNWANTED), |mut send| assert!(send.buffer_mut().is_ok()))
    };
    "PartitionedSend::into_buffer", Local, nothing, |c| {
        idle(c.psend_init(long(), 4, PEER, UNWANTED), |send| assert!(send.into_buffer().is_ok()))
    };
    "PartitionedRecv::start", Waits, gives_parts, |c| held(c.precv_init(long(), 2, PEER, TAG), |mut recv| {
        recv.start()?;
        recv.wait().map(drop)
    });
    "PartitionedRecv::arrived", Waits, gives_parts, |c| held(of_parts(c, TAG), |recv| {
        while !recv.arrived(0..2)? {
            std::thread::yield_now();
        }
        Ok(())
    });
    "PartitionedRecv::partition", Local, nothing, |c| {
        idle(c.precv_init(long(), 2, PEER, UNWANTED), |recv| assert_eq!(recv.partition(1), Ok(None)))
    };
    "PartitionedRecv::wait", Waits, gives_parts, |c| held(of_parts(c, TAG), |mut recv| recv.wait().map(drop));
    "PartitionedRecv::test", Waits, gives_parts, |c| held(of_parts(c, TAG), |mut recv| loop {
        if let Some(end) = recv.test() {
            return end.map(drop);
        }
        std::thread::yield_now();
    });
    "PartitionedRecv::cancel", Cancelled, nothing, |c| held(of_parts(c, NEVER), |mut recv| {
        recv.cancel();
        recv.wait().map(drop)
    });
    "PartitionedRecv::into_request", Waits, gives_parts, |c| {
        held(of_parts(c, TAG), |recv| Ok(recv.into_request().wait().map(drop)?))
    };
    "PartitionedRecv::partitions", Local, nothing, |c| {
        idle(c.precv_init(long(), 2, PEER, UNWANTED), |recv| assert_eq!(recv.partitions(), 2))
    };
    "PartitionedRecv::buffer_mut", Local, nothing, |c| {
        idle(c.precv_init(long(), 2, PEER, UNWANTED), |mut recv| assert!(recv.buffer_mut().is_ok()))
    };
    "PartitionedRecv::into_buffer", Local, nothing, |c| {
        idle(c.precv_init(long(), 2, PEER, UNWANTED), |recv| assert!(recv.into_buffer().is_ok()))
    };
    "Comm::request_set", Local, nothing, |c| local(c, |c| drop(c.request_set::<Vec<u8>>()));
    "RequestSet::insert", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| first(s.wait_some()));
    "RequestSet::wait_any", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| first(s.wait_any()));
    "RequestSet::wait_any for any", WaitsForAny, gives, |c| {
        held(set(c, Source::ANY, TAG), |mut s| first(s.wait_any()))
    };
    "RequestSet::wait_some", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| first(s.wait_some()));
    "RequestSet::wait_all", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| first(s.wait_all()));
    "RequestSet::test_any", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| loop {
        if let Some(end) = s.test_any() {
            return first(Some(end));
        }
    });
    "RequestSet::test_some", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| loop {
        let ends = s.test_some();
        if !ends.is_empty() {
            return first(ends);
        }
    });
    "RequestSet::test_all", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| loop {
        if let Some(ends) = s.test_all() {
            return first(ends);
        }
    });
    "RequestSet::remove", Waits, gives, |c| held(set(c, PEER, TAG), |mut s| {
        Ok(s.remove(0).expect("it is there").wait().map(drop)?)
    });
    "RequestSet::cancel", Cancelled, nothing, |c| held(set(c, PEER, NEVER), |mut s| {
        s.cancel(0);
        first(s.wait_any())
    });
    "RequestSet::wait_any for a round", Waits, gives, |c| held(
        started(c.recv_init(long(), PEER, TAG)).map(|recv| set_of(c, recv.into_request())),
        |mut s| first(s.wait_any()),
    );
    "RequestSet::wait_any for a round from any", WaitsForAny, gives, |c| held(
        started(c.recv_init(long(), Source::ANY, TAG)).map(|recv| set_of(c, recv.into_request())),
        |mut s| first(s.wait_any()),
    );
    "RequestSet::wait_any for partitions", Waits, gives_parts, |c| held(
        of_parts(c, TAG).map(|recv| set_of(c, recv.into_request())),
        |mut s| first(s.wait_any()),
    );
    "RequestSet::cancel of a round", Cancelled, nothing, |c| held(
        started(c.recv_init(long(), PEER, NEVER)).map(|recv| set_of(c, recv.into_request())),
        |mut s| {
            s.cancel(0);
            first(s.wait_any())
        },
    );
    "RequestSet::operation", Local, nothing, |c| local(c, |c| {
        let set = set_of(c, c.recv_init(long(), PEER, TAG).unwrap().into_request());
        assert!(set.operation::<PersistentRecv<Vec<u8>>>(0).is_some_and(|recv| !recv.is_active()));
    });
    "RequestSet::len", Local, nothing, |c| local(c, |c| assert_eq!(c.request_set::<Vec<u8>>().len(), 0));
    "RequestSet::is_empty", Local, nothing, |c| local(c, |c| assert!(c.request_set::<Vec<u8>>().is_empty()));
    "Comm::scope", Waits, takes, |c| whole(c, |c| {
        let data = long();
        c.scope(|scope| scope.isend(&data, PEER, TAG).map(drop))
    });
    "Comm::send_view", Waits, takes, |c| whole(c, |c| {
        c.send_view(scattered().of(&vec![7; 2 * LONG])?, PEER, TAG)
    });
    "Comm::recv_view", Waits, gives, |c| whole(c, |c| {
        c.recv_view(&mut scattered().of_mut(&mut vec![0; 2 * LONG])?, PEER, TAG).map(drop)
    });
    "Scope::isend_view", Waits, takes, |c| whole(c, |c| {
        let (layout, data) = (scattered(), vec![7; 2 * LONG]);
        let view = layout.of(&data)?;
        c.scope(|scope| scope.isend_view(view, PEER, TAG).map(drop))
    });
    "Scope::irecv_view", Waits, gives, |c| whole(c, |c| {
        let (layout, mut buffer) = (scattered(), vec![0; 2 * LONG]);
        let view = layout.of_mut(&mut buffer)?;
        c.scope(|scope| scope.irecv_view(view, PEER, TAG).map(drop))
    });
    "Scope::isend", Waits, takes, |c| whole(c, |c| {
        let data = long();
        c.scope(|scope| {
            let sent = scope.isend(&data, PEER, TAG)?;
            scope.wait(sent).map(drop)
        })
    });
    "Scope::irecv", Waits, gives, |c| whole(c, |c| {
        let mut buffer = long();
        c.scope(|scope| scope.irecv(&mut buffer, PEER, TAG).map(drop))
    });
    "Scope::irecv_checked", Waits, gives, |c| whole(c, |c| {
        let mut buffer = [false; LONG];
        c.scope(|scope| scope.irecv_checked(&mut buffer, PEER, TAG).map(drop))
    });
    "Scope::wait", Waits, gives, |c| whole(c, |c| {
        let (mut buffer, mut other) = (long(), long());
        c.scope(|scope| {
            let never = scope.irecv(&mut other, Rank(0), NEVER)?;
            let posted = scope.irecv(&mut buffer, PEER, TAG)?;
            scope.wait(posted)?;
            scope.cancel(&never);
            assert!(matches!(scope.wait(never), Err(Error::Cancelled { .. })));
            Ok(())
        })
    });
    "Scope::test", Waits, gives, |c| whole(c, |c| {
        let mut buffer = long();
        c.scope(|scope| {
            let mut posted = scope.irecv(&mut buffer, PEER, TAG)?;
            while scope.test(&mut posted).transpose()?.is_none() {}
            Ok(())
        })
    });
    "Scope::cancel", Cancelled, nothing, |c| whole(c, |c| {
        let mut buffer = long();
        c.scope(|scope| {
            let posted = scope.irecv(&mut buffer, PEER, NEVER)?;
            scope.cancel(&posted);
            scope.wait(posted).map(drop)
        })
    });
    "Scope::wait_any", Waits, gives, |c| {
        whole(c, |c| scoped(c, PEER, TAG, |scope, set| Ok(scope.wait_any(set).into_iter().collect())))
    };
    "Scope::wait_any for any", WaitsForAny, gives, |c| {
        whole(c, |c| scoped(c, Source::ANY, TAG, |scope, set| Ok(scope.wait_any(set).into_iter().collect())))
    };
    "Scope::wait_some", Waits, gives, |c| {
        whole(c, |c| scoped(c, PEER, TAG, |scope, set| Ok(scope.wait_some(set))))
    };
    "Scope::wait_all", Waits, gives, |c| whole(c, |c| scoped(c, PEER, TAG, |scope, set| Ok(scope.wait_all(set))));
    "Scope::test_any", Waits, gives, |c| {
        whole(c, |c| scoped(c, PEER, TAG, |scope, set| Ok(scope.test_any(set).into_iter().collect())))
    };
    "Scope::test_some", Waits, gives, |c| whole(c, |c| scoped(c, PEER, TAG, |scope, set| Ok(scope.test_some(set))));
    "Scope::test_all", Waits, gives, |c| {
        whole(c, |c| scoped(c, PEER, TAG, |scope, set| Ok(scope.test_all(set).unwrap_or_default())))
    };
    "PendingSet::insert", Waits, gives, |c| {
        whole(c, |c| scoped(c, PEER, TAG, |scope, set| Ok(scope.wait_some(set))))
    };
    "PendingSet::get", Cancelled, nothing, |c| whole(c, |c| scoped(c, PEER, NEVER, |scope, set| {
        scope.cancel(set.get(0).expect("it is under way"));
        Ok(scope.wait_some(set))
    }));
    "PendingSet::len", Local, nothing, |c| local(c, |_| assert_eq!(PendingSet::default().len(), 0));
    "PendingSet::is_empty", Local, nothing, |c| local(c, |_| assert!(PendingSet::default().is_empty()));
    "Comm::probe", Claimed, gives_before, |c| whole(c, |c| {
        c.probe(PEER, GIVEN)?;
        c.recv(&mut long(), PEER, GIVEN).map(drop)
    });
    "Comm::probe of nothing", Bounded, nothing, |c| whole(c, |c| {
        c.with_timeout(Duration::from_millis(1)).probe(PEER, NEVER).map(drop)
    });
    "Comm::try_probe", Looks, nothing, |c| whole(c, |c| c.try_probe(PEER, NEVER).map(drop));
    "Comm::claim", Claimed, gives_before, |c| whole(c, |c| c.claim(PEER, GIVEN)?.recv::<u8>().map(drop));
    "Comm::probe_async", Claimed, gives_before, |c| whole(c, |c| {
        block_on(c.probe_async(PEER, GIVEN))?;
        c.recv(&mut long(), PEER, GIVEN).map(drop)
    });
    "Comm::probe_async of nothing", Bounded, nothing, |c| whole(c, |c| {
        block_on(c.with_timeout(Duration::from_millis(1)).probe_async(PEER, NEVER)).map(drop)
    });
    "Comm::claim_async", Claimed, gives_before, |c| whole(c, |c| {
        block_on(c.claim_async(PEER, GIVEN))?.recv::<u8>().map(drop)
    });
    "Comm::claim_async for any", WaitsForAny, gives, |c| whole(c, |c| {
        block_on(c.claim_async(Source::ANY, TAG))?.recv::<u8>().map(drop)
    });
    "Message::irecv", Claimed, gives_before, |c| {
        held(c.claim(PEER, GIVEN), |message| Ok(message.irecv(long())?.wait().map(drop)?))
    };
    "Comm::try_claim", Looks, nothing, |c| whole(c, |c| c.try_claim(PEER, NEVER).map(drop));
    "Message::recv", Claimed, gives_before, |c| {
        held(c.claim(PEER, GIVEN), |message| message.recv::<u8>().map(drop))
    };
    "Message::status", Local, gives_before, |c| {
        let message = c.claim(PEER, GIVEN);
        Box::new(move || {
            let _ = message.map(|message| assert_eq!(message.status().bytes, LONG));
            Ok(())
        })
    };
    "Comm::with_timeout", Bounded, nothing, |c| whole(c, |c| {
        c.with_timeout(Duration::from_millis(1)).recv(&mut long(), PEER, NEVER).map(drop)
    });
    "Comm::with_cancel", Cancelled, nothing, |c| whole(c, |c| {
        let cancel = CancelToken::new();
        cancel.cancel();
        c.with_cancel(&cancel).recv(&mut long(), PEER, NEVER).map(drop)
    });
    "CancelToken::cancel", Local, nothing, |c| local(c, |_| CancelToken::new().cancel());
    "CancelToken::new", Local, nothing, |c| local(c, |_| drop(CancelToken::new()));
    "Comm::incarnation", Asks, nothing, |c| whole(c, |c| c.incarnation(PEER).map(drop));
    "Comm::wait_for_restart", Returns, nothing, |c| whole(c, |c| {
        c.wait_for_restart(PEER, Duration::from_millis(100)).map(drop)
    });
    "Comm::dup", Waits, duplicates, |c| whole(c, |c| c.dup().map(drop));
    "Comm::dup_with", Waits, duplicates, |c| whole(c, |c| c.dup_with(Hints::NONE.no_any_tag()).map(drop));
    "Comm::idup_with", Waits, duplicates, |c| {
        held(c.idup_with(Hints::NONE.no_any_tag()), |creation| creation.wait().map(drop))
    };
    "Comm::hints", Local, nothing, |c| local(c, |c| assert_eq!(c.hints(), Hints::NONE));
    "Comm::barrier", Waits, meets_all, |c| whole(c, meets_all);
    "Comm::bcast", Waits, broadcasts, |c| whole(c, broadcasts);
    "Comm::gather", Waits, gathers, |c| {
        whole(c, |c| c.gather(&long(), &mut [long(), long()].concat(), Rank(0)))
    };
    "Comm::gather_in_place", Waits, gathers, |c| {
        whole(c, |c| c.gather_in_place(&mut [long(), long()].concat()))
    };
    "Comm::scatter", Waits, is_given_a_block, |c| {
        whole(c, |c| c.scatter(&[long(), long()].concat(), &mut long(), Rank(0)))
    };
    "Comm::scatter_in_place", Waits, is_given_a_block, |c| {
        whole(c, |c| c.scatter_in_place(&[long(), long()].concat()))
    };
    "Comm::allgather", Waits, allgathers, |c| whole(c, allgathers);
    "Comm::allgather_in_place", Waits, allgathers, |c| {
        whole(c, |c| c.allgather_in_place(&mut [long(), long()].concat()))
    };
    "Comm::alltoall", Waits, exchanges_blocks, |c| whole(c, |c| c.alltoall(&long(), &mut long()));
    "Comm::alltoall_in_place", Waits, exchanges_blocks, |c| whole(c, exchanges_blocks);
    "Comm::reduce", Waits, reduces, |c| {
        whole(c, |c| c.reduce(&long(), &mut long(), Max, Rank(0)))
    };
    "Comm::reduce_in_place", Waits, reduces, |c| {
        whole(c, |c| c.reduce_in_place(&mut long(), Max))
    };
    "Comm::allreduce", Waits, allreduces, |c| whole(c, |c| c.allreduce(&long(), &mut long(), Max));
    "Comm::allreduce_in_place", Waits, allreduces, |c| whole(c, allreduces);
    "Comm::reduce_scatter", Waits, scatters_reduced, |c| {
        whole(c, |c| c.reduce_scatter(&long(), &mut long()[LONG / 2..], Max))
    };
    "Comm::reduce_scatter_in_place", Waits, scatters_reduced, |c| whole(c, scatters_reduced);
    "Comm::scan to the next rank", Waits, scans, |c| {
        whole(c, |c| c.scan(&long(), &mut long(), Max))
    };
    "Comm::scan_in_place to the next rank", Waits, scans, |c| whole(c, scans);
    "Comm::exscan to the next rank", Waits, scans_before, |c| {
        whole(c, |c| c.exscan(&long(), &mut long(), Max))
    };
    "Comm::exscan_in_place to the next rank", Waits, scans_before, |c| whole(c, scans_before);
    "Comm::gatherv", Waits, gathers_blocks, |c| {
        whole(c, |c| c.gatherv(&long(), &mut [long(), long()].concat(), &halves(2 * LONG), Rank(0)))
    };
    "Comm::gatherv_in_place", Waits, gathers_blocks, |c| {
        whole(c, |c| c.gatherv_in_place(&mut [long(), long()].concat(), &halves(2 * LONG)))
    };
    "Comm::scatterv", Waits, is_given_some_block, |c| {
        whole(c, |c| c.scatterv(&[long(), long()].concat(), &halves(2 * LONG), &mut long(), Rank(0)))
    };
    "Comm::scatterv_in_place", Waits, is_given_some_block, |c| {
        whole(c, |c| c.scatterv_in_place(&[long(), long()].concat(), &halves(2 * LONG)))
    };
    "Comm::allgatherv", Waits, allgathers_blocks, |c| {
        whole(c, |c| c.allgatherv(&long()[LONG / 2..], &mut long(), &halves(LONG)))
    };
    "Comm::allgatherv_in_place", Waits, allgathers_blocks, |c| whole(c, allgathers_blocks);
    "Comm::alltoallv", Waits, exchanges_some_blocks, |c| {
        whole(c, |c| c.alltoallv(&long(), &halves(LONG), &mut long(), &halves(LONG)))
    };
    "Comm::alltoallv_in_place", Waits, exchanges_some_blocks, |c| whole(c, exchanges_some_blocks);
    "Comm::reduce_scatterv", Waits, scatters_reduced_blocks, |c| whole(c, scatters_reduced_blocks);
    "Comm::reduce_scatterv_in_place", Waits, scatters_reduced_blocks, |c| {
        whole(c, |c| c.reduce_scatterv_in_place(&mut long(), &[LONG / 2; 2], Max))
    };
    "Comm::window", Waits, shares_a_window, |c| whole(c, shares_a_window);
    "Comm::allocate_window", Waits, allocates_a_window, |c| whole(c, allocates_a_window);
    "Comm::window_with", Waits, has_a_window, |c| {
        held(c.window_with(elements(), WindowHints::NONE), |w| locked(w, |e| e.put(PEER, 0, &elements())))
    };
    "Comm::allocate_window_with", Waits, has_a_window, |c| {
        held(c.allocate_window_with(4, WindowHints::NONE), |w| locked(w, |e| e.put(PEER, 0, &elements())))
    };
    "Comm::dynamic_window", Waits, attaches_memory, |c| whole(c, attaches_memory);
    "Comm::dynamic_window_with", Waits, attaches_memory, |c| {
        held(c.dynamic_window_with(WindowHints::NONE), attaches)
    };
    "Window::attach", Local, has_a_dynamic_window, |c| {
        idle(c.dynamic_window::<u64>(), |w| drop(w.attach(elements())))
    };
    "Window::detach", Local, has_a_dynamic_window, |c| {
        idle(c.dynamic_window::<u64>(), |w| drop(w.attach(elements()).and_then(|region| w.detach(region))))
    };
    "Window::comm", Local, has_a_window, |c| idle(made(c), |w| assert_eq!(w.comm().size(), 2));
    "Window::len", Local, has_a_window, |c| idle(made(c), |w| assert_eq!(w.len(), elements().len()));
    "Window::is_empty", Local, has_a_window, |c| idle(made(c), |w| assert!(!w.is_empty()));
    "Window::read", Local, has_a_window, |c| idle(made(c), |w| w.read(0, &mut elements()).unwrap());
    "Window::read_vec", Local, has_a_window, |c| idle(made(c), |w| drop(w.read_vec(0..2).unwrap()));
    "Window::write", Local, has_a_window, |c| idle(made(c), |w| w.write(0, &elements()).unwrap());
    "Window::set_timeout", Local, has_a_window, |c| idle(made(c), |mut w| w.set_timeout(None));
    "Window::set_cancel", Cancelled, has_a_window, |c| held(made(c), |mut w| {
        let token = CancelToken::new();
        w.set_cancel(&token);
        token.cancel();
        exposed(w, |e| e.close())
    });
    "Window::view", Waits, has_an_allocated_window, |c| held(c.allocate_window(4), viewed);
    "Window::free", Waits, has_a_window, |c| held(made(c), |w| w.free().map(drop));
    "Window::ifree", Waits, has_a_window, |c| held(made(c), |w| Ok(w.ifree()?.wait().map(drop)?));
    "Window::fence", Waits, fences, |c| held(made(c), |w| in_a_fence(w, |e| e.close()));
    "Window::start", Waits, is_exposed, |c| held(made(c), |w| in_an_access(w, |e| e.close()));
    "Window::post", Waits, accesses, |c| held(made(c), |w| exposed(w, |e| e.close()));
    "Window::lock", Waits, has_a_window, |c| held(made(c), |w| locked(w, |_| Ok(())));
    "Window::lock_all", Waits, has_a_window, |c| {
        held(made(c), |w| all_locked(w, |e| e.put(PEER, 0, &elements())))
    };
    "Epoch::close", Waits, is_exposed, |c| held(made(c), |w| in_an_access(w, |e| e.close()));
    "Epoch::iclose", Waits, is_exposed, |c| {
        held(made(c), |w| in_an_access(w, |e| Ok(e.iclose()?.wait().map(drop)?)))
    };
    "Epoch::next", Waits, fences_twice, |c| held(made(c), |w| in_a_fence(w, |e| e.next()?.close()));
    "Epoch::inext", Waits, fences_twice, |c| held(made(c), |w| in_a_fence(w, |e| {
        let (end, next) = e.inext()?;
        end.wait()?;
        next.close()
    }));
    "Epoch::is_finished", Asks, accesses, |c| held(made(c), |w| exposed(w, |e| e.is_finished().map(drop)));
    "Window::part_mut", Waits, has_a_window, |c| {
        held(c.window_with(elements(), WindowHints::NONE.slices()), sliced_between)
    };
    "Epoch::part_mut", Waits, has_a_window, |c| {
        held(c.window_with(elements(), WindowHints::NONE.slices()), sliced)
    };
    "Epoch::put", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| e.put(PEER, 0, &elements())));
    "Epoch::iput", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| Ok(e.iput(PEER, 0, elements())?.wait().map(drop)?)))
    };
    "Epoch::get", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| e.get(PEER, 0, &mut elements())))
    };
    "Epoch::iget", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| Ok(e.iget(PEER, 0, elements())?.wait().map(drop)?)))
    };
    "Epoch::put_view", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| e.put_view(PEER, 3, &backwards(), &elements()[..])))
    };
    "Epoch::iput_view", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| Ok(e.iput_view(PEER, 3, &backwards(), elements())?.wait().map(drop)?)))
    };
    "Epoch::get_view", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| e.get_view(PEER, 3, &backwards(), &mut elements()[..])))
    };
    "Epoch::iget_view", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| Ok(e.iget_view(PEER, 3, &backwards(), elements())?.wait().map(drop)?)))
    };
    "Epoch::accumulate_view", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| {
        e.accumulate_view(PEER, 3, &backwards(), &elements()[..], WindowOp::Sum)
    }));
    "Epoch::iaccumulate_view", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| {
        let sent = e.iaccumulate_view(PEER, 3, &backwards(), elements(), WindowOp::Sum)?;
        Ok(sent.wait().map(drop)?)
    }));
    "Epoch::iget_accumulate_view", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| {
        let former = e.iget_accumulate_view(PEER, 3, &backwards(), elements(), WindowOp::Sum)?;
        Ok(former.wait().map(drop)?)
    }));
    "Epoch::accumulate", Waits, has_a_window, |c| {
        held(made(c), |w| locked(w, |e| e.accumulate(PEER, 0, &elements(), WindowOp::Sum)))
    };
    "Epoch::iaccumulate", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| {
        Ok(e.iaccumulate(PEER, 0, elements(), WindowOp::Sum)?.wait().map(drop)?)
    }));
    "Epoch::iget_accumulate", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| {
        Ok(e.iget_accumulate(PEER, 0, elements(), WindowOp::Sum)?.wait().map(drop)?)
    }));
    "Epoch::fetch", Waits, has_a_window, |c| {
        held(made(c), |w| all_locked(w, |e| e.fetch(PEER, 0, 1, WindowOp::Sum).map(drop)))
    };
    "Epoch::compare_swap", Waits, has_a_window, |c| {
        held(made(c), |w| all_locked(w, |e| e.compare_swap(PEER, 0, 0, 1).map(drop)))
    };
    "Epoch::icompare_swap", Waits, has_a_window, |c| {
        held(made(c), |w| all_locked(w, |e| Ok(e.icompare_swap(PEER, 0, 0, 1)?.wait().map(drop)?)))
    };
    "Epoch::flush", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| {
        e.put(PEER, 0, &elements())?;
        e.flush(PEER)
    }));
    "Epoch::iflush", Waits, has_a_window, |c| held(made(c), |w| locked(w, |e| {
        e.put(PEER, 0, &elements())?;
        Ok(e.iflush(PEER)?.wait().map(drop)?)
    }));
    "Epoch::flush_all", Waits, has_a_window, |c| held(made(c), |w| all_locked(w, |e| {
        e.put(PEER, 0, &elements())?;
        e.flush_all()
    }));
    "Epoch::iflush_all", Waits, has_a_window, |c| held(made(c), |w| all_locked(w, |e| {
        e.put(PEER, 0, &elements())?;
        Ok(e.iflush_all()?.wait().map(drop)?)
    }));
    "Comm::ibarrier", Waits, meets_all, |c| held(c.ibarrier(), |r| Ok(r.wait().map(drop)?));
    "Comm::barrier_init", Waits, meets_all, |c| held(c.barrier_init(), |o| round(o, |o| o.wait()));
    "Comm::ibcast", Waits, broadcasts, |c| held(c.ibcast(long(), PEER), |r| Ok(r.wait().map(drop)?));
    "Comm::bcast_init", Waits, broadcasts, |c| held(c.bcast_init(long(), PEER), |o| round(o, |o| o.wait()));
    "Comm::igather", Waits, gathers, |c| held(c.igather(long(), [long(), long()].concat(), Rank(0)), |r| Ok(r.wait().map(drop)?));
    "Comm::gather_init", Waits, gathers, |c| held(c.gather_init(long(), [long(), long()].concat(), Rank(0)), |o| round(o, |o| o.wait()));
    "Comm::iscatter", Waits, is_given_a_block, |c| held(c.iscatter([long(), long()].concat(), long(), Rank(0)), |r| Ok(r.wait().map(drop)?));
    "Comm::scatter_init", Waits, is_given_a_block, |c| held(c.scatter_init([long(), long()].concat(), long(), Rank(0)), |o| round(o, |o| o.wait()));
    "Comm::iallgather", Waits, allgathers, |c| held(c.iallgather(long(), [long(), long()].concat()), |r| Ok(r.wait().map(drop)?));
    "Comm::allgather_init", Waits, allgathers, |c| held(c.allgather_init(long(), [long(), long()].concat()), |o| round(o, |o| o.wait()));
    "Comm::ialltoall", Waits, exchanges_blocks, |c| held(c.ialltoall(long(), long()), |r| Ok(r.wait().map(drop)?));
    "Comm::alltoall_init", Waits, exchanges_blocks, |c| held(c.alltoall_init(long(), long()), |o| round(o, |o| o.wait()));
    "Comm::ireduce", Waits, reduces, |c| held(c.ireduce(long(), long(), Max, Rank(0)), |r| Ok(r.wait().map(drop)?));
    "Comm::reduce_init", Waits, reduces, |c| held(c.reduce_init(long(), long(), Max, Rank(0)), |o| round(o, |o| o.wait()));
    "Comm::iallreduce", Waits, allreduces, |c| held(c.iallreduce(InPlace, long(), Max), |r| Ok(r.wait().map(drop)?));
    "Comm::allreduce_init", Waits, allreduces, |c| held(c.allreduce_init(InPlace, long(), Max), |o| round(o, |o| o.wait()));
    "Comm::ireduce_scatter", Waits, scatters_reduced, |c| held(c.ireduce_scatter(InPlace, long(), Max), |r| Ok(r.wait().map(drop)?));
    "Comm::reduce_scatter_init", Waits, scatters_reduced, |c| held(c.reduce_scatter_init(InPlace, long(), Max), |o| round(o, |o| o.wait()));
    "Comm::iscan", Waits, scans, |c| held(c.iscan(long(), long(), Max), |r| Ok(r.wait().map(drop)?));
    "Comm::scan_init", Waits, scans, |c| held(c.scan_init(long(), long(), Max), |o| round(o, |o| o.wait()));
    "Comm::iexscan", Waits, scans_before, |c| held(c.iexscan(long(), long(), Max), |r| Ok(r.wait().map(drop)?));
    "Comm::exscan_init", Waits, scans_before, |c| held(c.exscan_init(long(), long(), Max), |o| round(o, |o| o.wait()));
    "Comm::igatherv", Waits, gathers_blocks, |c| held(c.igatherv(long(), [long(), long()].concat(), &halves(2 * LONG), Rank(0)), |r| Ok(r.wait().map(drop)?));
    "Comm::gatherv_init", Waits, gathers_blocks, |c| held(c.gatherv_init(long(), [long(), long()].concat(), &halves(2 * LONG), Rank(0)), |o| round(o, |o| o.wait()));
    "Comm::iscatterv", Waits, is_given_some_block, |c| held(c.iscatterv([long(), long()].concat(), &halves(2 * LONG), long(), Rank(0)), |r| Ok(r.wait().map(drop)?));
    "Comm::scatterv_init", Waits, is_given_some_block, |c| held(c.scatterv_init([long(), long()].concat(), &halves(2 * LONG), long(), Rank(0)), |o| round(o, |o| o.wait()));
    "Comm::iallgatherv", Waits, allgathers_blocks, |c| held(c.iallgatherv(long()[LONG / 2..].to_vec(), long(), &halves(LONG)), |r| Ok(r.wait().map(drop)?));
    "Comm::allgatherv_init", Waits, allgathers_blocks, |c| held(c.allgatherv_init(long()[LONG / 2..].to_vec(), long(), &halves(LONG)), |o| round(o, |o| o.wait()));
    "Comm::ialltoallv", Waits, exchanges_some_blocks, |c| held(c.ialltoallv(InPlace, &[], long(), &halves(LONG)), |r| Ok(r.wait().map(drop)?));
    "Comm::alltoallv_init", Waits, exchanges_some_blocks, |c| held(c.alltoallv_init(InPlace, &[], long(), &halves(LONG)), |o| round(o, |o| o.wait()));
    "Comm::ireduce_scatterv", Waits, scatters_reduced_blocks, |c| held(c.ireduce_scatterv(long(), long()[LONG / 2..].to_vec(), &[LONG / 2; 2], Max), |r| Ok(r.wait().map(drop)?));
    "Comm::reduce_scatterv_init", Waits, scatters_reduced_blocks, |c| held(c.reduce_scatterv_init(long(), long()[LONG / 2..].to_vec(), &[LONG / 2; 2], Max), |o| round(o, |o| o.wait()));
    "Comm::alltoallw", Waits, exchanges_layouts, |c| {
        whole(c, |c| c.alltoallw(&long(), &layouts(halves(LONG)), &mut long(), &layouts(halves(LONG))))
    };
    "Comm::alltoallw_in_place", Waits, exchanges_layouts, |c| whole(c, exchanges_layouts);
    "Comm::ialltoallw", Waits, exchanges_layouts, |c| held(c.ialltoallw(InPlace, &layouts(halves(0)), long(), &layouts(halves(LONG))), |r| Ok(r.wait().map(drop)?));
    "Comm::alltoallw_init", Waits, exchanges_layouts, |c| held(c.alltoallw_init(InPlace, &layouts(halves(0)), long(), &layouts(halves(LONG))), |o| round(o, |o| o.wait()));
    "Comm::neighbour_allgather", Waits, gathers_from_neighbours, |c| whole(c, gathers_from_neighbours);
    "Comm::ineighbour_allgather", Waits, gathers_from_neighbours, |c| held(c.ineighbour_allgather(&line(c), long(), [long(), long()].concat()), |r| Ok(r.wait().map(drop)?));
    "Comm::neighbour_allgather_init", Waits, gathers_from_neighbours, |c| held(c.neighbour_allgather_init(&line(c), long(), [long(), long()].concat()), |o| round(o, |o| o.wait()));
    "Comm::neighbour_allgatherv", Waits, gathers_from_neighbours, |c| {
        whole(c, |c| c.neighbour_allgatherv(&line(c), &long(), &mut long(), &side(c)))
    };
    "Comm::ineighbour_allgatherv", Waits, gathers_from_neighbours, |c| held(c.ineighbour_allgatherv(&line(c), long(), long(), &side(c)), |r| Ok(r.wait().map(drop)?));
    "Comm::neighbour_allgatherv_init", Waits, gathers_from_neighbours, |c| held(c.neighbour_allgatherv_init(&line(c), long(), long(), &side(c)), |o| round(o, |o| o.wait()));
    "Comm::neighbour_alltoall", Waits, exchanges_with_neighbours, |c| whole(c, exchanges_with_neighbours);
    "Comm::ineighbour_alltoall", Waits, exchanges_with_neighbours, |c| held(c.ineighbour_alltoall(&line(c), [long(), long()].concat(), [long(), long()].concat()), |r| Ok(r.wait().map(drop)?));
    "Comm::neighbour_alltoall_init", Waits, exchanges_with_neighbours, |c| held(c.neighbour_alltoall_init(&line(c), [long(), long()].concat(), [long(), long()].concat()), |o| round(o, |o| o.wait()));
    "Comm::neighbour_alltoallv", Waits, exchanges_with_neighbours, |c| {
        whole(c, |c| c.neighbour_alltoallv(&line(c), &long(), &side(c), &mut long(), &side(c)))
    };
    "Comm::ineighbour_alltoallv", Waits, exchanges_with_neighbours, |c| held(c.ineighbour_alltoallv(&line(c), long(), &side(c), long(), &side(c)), |r| Ok(r.wait().map(drop)?));
    "Comm::neighbour_alltoallv_init", Waits, exchanges_with_neighbours, |c| held(c.neighbour_alltoallv_init(&line(c), long(), &side(c), long(), &side(c)), |o| round(o, |o| o.wait()));
    "Comm::neighbour_alltoallw", Waits, exchanges_with_neighbours, |c| {
        whole(c, |c| {
            let blocks = layouts(side(c));
            c.neighbour_alltoallw(&line(c), &long(), &blocks, &mut long(), &blocks)
        })
    };
    "Comm::ineighbour_alltoallw", Waits, exchanges_with_neighbours, |c| held(c.ineighbour_alltoallw(&line(c), long(), &layouts(side(c)), long(), &layouts(side(c))), |r| Ok(r.wait().map(drop)?));
    "Comm::neighbour_alltoallw_init", Waits, exchanges_with_neighbours, |c| held(c.neighbour_alltoallw_init(&line(c), long(), &layouts(side(c)), long(), &layouts(side(c))), |o| round(o, |o| o.wait()));
    "Comm::with_coll_algorithms", Local, nothing, |c| local(c, |c| {
        assert!(c.with_coll_algorithms("allreduce=ring").is_ok());
    });
    "PersistentCollective::start", Waits, allreduces, |c| held(started(summing(c)), |mut o| o.wait());
    "PersistentCollective::wait", Waits, allreduces, |c| held(summing(c), |o| round(o, |o| o.wait()));
    "PersistentCollective::test", Waits, allreduces, |c| held(summing(c), |o| round(o, |o| loop {
        if let Some(end) = o.test() {
            return end;
        }
        std::thread::yield_now();
    }));
    "PersistentCollective::cancel", Cancelled, allreduces_in_vain, |c| held(summing(c), |o| round(o, |o| {
        o.cancel();
        o.wait()
    }));
    "PersistentCollective::into_request", Waits, allreduces, |c| held(started(summing(c)), |o| {
        Ok(o.into_request().wait().map(drop)?)
    });
    "PersistentCollective::is_active", Local, nothing, |c| local(c, |c| assert!(!summing(c).unwrap().is_active()));
    "PersistentCollective::input", Local, nothing, |c| local(c, |c| assert!(summing(c).unwrap().input().is_ok()));
    "PersistentCollective::input_mut", Local, nothing, |c| local(c, |c| {
        assert!(summing(c).unwrap().input_mut().is_ok());
    });
    "PersistentCollective::output", Local, nothing, |c| local(c, |c| {
        assert_eq!(summing(c).unwrap().output().unwrap().len(), LONG);
    });
    "PersistentCollective::output_mut", Local, nothing, |c| local(c, |c| {
        assert!(summing(c).unwrap().output_mut().is_ok());
    });
    "Comm::split", Waits, splits, |c| whole(c, |c| c.split(Some(1), 0).map(drop));
    "Comm::create_from_group", Waits, creates, |c| whole(c, |c| c.create_from_group(&c.group(), 0).map(drop));
    "Comm::split_by", Waits, splits_by_host, |c| {
        whole(c, |c| c.split_by(Locality::Host, 0).map(drop))
    };
    "Comm::self_comm", Asks, nothing, |c| whole(c, |c| c.self_comm().map(drop));
    "Comm::set_name", Local, nothing, |c| local(c, |c| c.set_name("all"));
    "Comm::name", Local, nothing, |c| local(c, |c| drop(c.name()));
    "Comm::set_attribute", Local, nothing, |c| local(c, |c| c.set_attribute(Mark));
    "Comm::attribute", Local, nothing, |c| local(c, |c| drop(c.attribute::<Mark>()));
    "Comm::remove_attribute", Local, nothing, |c| local(c, |c| drop(c.remove_attribute::<Mark>()));
    "Comm::idup", Waits, duplicates, |c| held(c.idup(), |creation| creation.wait().map(drop));
    "Comm::isplit", Waits, splits, |c| held(c.isplit(Some(1), 0), |creation| creation.wait().map(drop));
    "Comm::icreate_from_group", Waits, creates, |c| held(c.icreate_from_group(&c.group(), 0), |creation| creation.wait().map(drop));
    "Comm::create_intercomm", Waits, meets, |c| whole(c, meets);
    "Comm::icreate_intercomm", Waits, meets, |c| whole(c, |c| {
        c.self_comm()?.icreate_intercomm(Rank(0), c, PEER, 0)?.wait().map(drop)
    });
    "Comm::merge", Waits, merges, |c| whole(c, merges);
    "Comm::imerge", Waits, merges, |c| whole(c, |c| both(c)?.imerge(false)?.wait().map(drop));
    "Comm::agree", Survives, agrees, |c| whole(c, agrees);
    "Comm::iagree", Survives, agrees, |c| held(c.iagree(1), |creation| creation.wait().map(drop));
    "Comm::shrink", Survives, shrinks, |c| whole(c, shrinks);
    "Comm::ishrink", Survives, shrinks, |c| held(c.ishrink(), |creation| creation.wait().map(drop));
    "Comm::revoke", Asks, nothing, |c| whole(c, |c| c.self_comm()?.revoke());
    "Comm::is_revoked", Local, nothing, |c| local(c, |c| assert!(!c.is_revoked()));
    "Comm::failed", Asks, nothing, |c| whole(c, |c| c.failed().map(drop));
    "Comm::acknowledge", Asks, nothing, |c| whole(c, |c| c.self_comm()?.acknowledge().map(drop));
    "Comm::remote_group", Local, nothing, |c| local(c, |c| assert_eq!(c.remote_group(), None));
    "Comm::remote_size", Local, nothing, |c| local(c, |c| assert_eq!(c.remote_size(), None));
    "Creation::wait", Waits, duplicates, |c| whole(c, |c| c.idup()?.wait().map(drop));
    "Creation::test", Waits, duplicates, |c| whole(c, |c| {
        let mut creation = c.idup()?;
        loop {
            if let Some(end) = creation.test() {
                break end.map(drop);
            }
        }
    });
    "Creation::cancel", Cancelled, nothing, |c| whole(c, |c| {
        let creation = c.icreate_from_group(&c.group(), 1)?;
        creation.cancel();
        creation.wait().map(drop)
    });
    "Comm::group", Local, nothing, |c| local(c, |c| assert_eq!(c.group().len(), 2));
    "Comm::rank", Local, nothing, |c| local(c, |c| assert_eq!(c.rank(), 0));
    "Comm::size", Local, nothing, |c| local(c, |c| assert_eq!(c.size(), 2));
    "Comm::driver", Asks, nothing, |c| whole(c, |c| c.driver().map(drop));
    "Comm::lane", Local, nothing, |c| local(c, |c| drop(c.lane(0)));
    "Comm::transport", Local, nothing, |c| local(c, |c| drop(c.transport(PEER)));
    "Comm::explain", Local, nothing, |c| local(c, |c| drop(c.explain(PEER)));
    "Comm::stats", Local, nothing, |c| local(c, |c| assert_eq!(c.stats().rank, 0));
}

/// The public methods of World. They are not in the table, because the tests use them to make the situations.
pub(crate) const OF_WORLD: &[&str] = &["World::comm", "World::leave"];
