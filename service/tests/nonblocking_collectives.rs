//! Nonblocking and persistent collective operations, compared with the blocking calls.

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use samite::reduction::{Max, ReduceOp, Sum, commuting, in_rank_order};
use samite::{
    AnyBuffer, CancelToken, Cause, Comm, Done, Error, InPlace, PersistentCollective, Rank, Request, Settings,
    World, consecutive,
};

/// Runs ranks that must all succeed.
fn all<R: Send + std::fmt::Debug>(n: u32, body: impl Fn(&Comm) -> Result<R, Error> + Sync) -> Vec<R> {
    let results = samite::local(n, |world: World| body(world.comm()));
    results.into_iter().map(|result| result.unwrap()).collect()
}

/// An element whose size is not a power of two, so that wrong offsets show.
type Odd = [u16; 3];

fn mine(rank: u32, len: usize) -> Vec<Odd> {
    (0..len).map(|index| [rank as u16 + 1, index as u16, (rank as usize * 31 + index * 7) as u16]).collect()
}

/// The composition of affine functions, which does not commute.
fn ordered() -> impl ReduceOp<Odd> {
    in_rank_order(|from: &[Odd], into: &mut [Odd]| {
        for ([m, c, x], right) in from.iter().zip(into) {
            let [n, d, y] = *right;
            *right = [m.wrapping_mul(n), c.wrapping_mul(n).wrapping_add(d), x.wrapping_add(y)];
        }
    })
}

const NONE: Odd = [9; 3];

type Started<I, O> = Result<Request<(I, O)>, samite::Failed<(I, O)>>;

/// Waits for an operation. Returns its output.
fn output<I, O>(request: Started<I, O>) -> Result<O, Error>
where
    (I, O): samite::Owned,
{
    Ok(request?.wait()?.buffer.1)
}

/// Starts an operation twice, and returns the output of the second round.
fn twice<I, O>(operation: Result<PersistentCollective<I, O>, Error>) -> Result<O, Error>
where
    I: samite::CollectiveInput<Odd> + Clone,
    O: samite::CollectiveOutput<Odd> + Clone,
{
    let mut operation = operation?;
    let before = (operation.input()?.clone(), operation.output()?.clone());
    operation.start()?;
    assert!(matches!(operation.output(), Err(Error::Active { .. })));
    operation.wait()?;
    let first = operation.output()?.clone();
    (*operation.input_mut()?, *operation.output_mut()?) = before;
    operation.start()?;
    let mut operation = operation.into_request().wait()?.buffer;
    assert!(!operation.is_active() && operation.wait() == Err(Error::Inactive));
    assert!(std::mem::replace(operation.output_mut()?, first).elements() == operation.output()?.elements());
    Ok(operation.output()?.clone())
}

/// Compares a blocking call with its nonblocking and its persistent form, each with and without `InPlace`.
macro_rules! compare {
    ($comm:ident.$blocking:ident, $call:ident, $init:ident($input:expr, $room:expr $(, $argument:expr)*)) => {{
        let (input, mut expected) = ($input, vec![NONE; $room]);
        $comm.$blocking(&input, &mut expected $(, $argument)*)?;
        assert_eq!(output($comm.$call(input.clone(), vec![NONE; $room] $(, $argument)*))?, expected);
        let shared: Arc<[Odd]> = input.clone().into();
        let boxed = vec![NONE; $room].into_boxed_slice();
        assert_eq!(*output($comm.$call(shared, boxed $(, $argument)*))?, expected);
        assert_eq!(twice($comm.$init(input, vec![NONE; $room] $(, $argument)*))?, expected);
        expected
    }};
}

fn everything(comm: &Comm, len: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank().0, comm.size());
    let whole = len * n as usize;
    comm.ibarrier()?.wait()?;
    let mut barrier = comm.barrier_init()?;
    barrier.start()?;
    barrier.wait()?;
    for root in [Rank(0), Rank(n - 1)] {
        let is_root = comm.rank() == root;
        let data = || if is_root { mine(root.0, len) } else { vec![NONE; len] };
        assert_eq!(comm.ibcast(data(), root)?.wait()?.buffer, mine(root.0, len));
        assert_eq!(twice_without_input(comm.bcast_init(data(), root)?)?, mine(root.0, len));
        let room = |room| if is_root { room } else { 0 };
        let gathered = compare!(comm.gather, igather, gather_init(mine(rank, len), room(whole), root));
        let scattered = compare!(comm.scatter, iscatter, scatter_init(mine(rank, room(whole)), len, root));
        let reduced =
            compare!(comm.reduce, ireduce, reduce_init(mine(rank, len), room(len), ordered(), root));
        if is_root {
            let mut buffer = vec![NONE; whole];
            buffer[rank as usize * len..][..len].copy_from_slice(&mine(rank, len));
            assert_eq!(output(comm.igather(InPlace, buffer, root))?, gathered);
            comm.iscatter(mine(rank, whole), InPlace, root)?.wait()?;
            assert_eq!(scattered, mine(rank, whole)[rank as usize * len..][..len]);
            assert_eq!(output(comm.ireduce(InPlace, mine(rank, len), ordered(), root))?, reduced);
        } else {
            comm.igather(mine(rank, len), vec![], root)?.wait()?;
            assert_eq!(output(comm.iscatter(vec![], vec![NONE; len], root))?, scattered);
            comm.ireduce(mine(rank, len), vec![], ordered(), root)?.wait()?;
        }
    }
    let gathered = compare!(comm.allgather, iallgather, allgather_init(mine(rank, len), whole));
    let mut buffer = vec![NONE; whole];
    buffer[rank as usize * len..][..len].copy_from_slice(&mine(rank, len));
    assert_eq!(output(comm.iallgather(InPlace, buffer))?, gathered);
    let exchanged = compare!(comm.alltoall, ialltoall, alltoall_init(mine(rank, whole), whole));
    assert_eq!(output(comm.ialltoall(InPlace, mine(rank, whole)))?, exchanged);
    let reduced = compare!(comm.allreduce, iallreduce, allreduce_init(mine(rank, len), len, ordered()));
    assert_eq!(output(comm.iallreduce(InPlace, mine(rank, len), ordered()))?, reduced);
    let block = compare!(
        comm.reduce_scatter,
        ireduce_scatter,
        reduce_scatter_init(mine(rank, whole), len, ordered())
    );
    assert_eq!(output(comm.ireduce_scatter(InPlace, mine(rank, whole), ordered()))?[..len], block);
    let scanned = compare!(comm.scan, iscan, scan_init(mine(rank, len), len, ordered()));
    assert_eq!(output(comm.iscan(InPlace, mine(rank, len), ordered()))?, scanned);
    let scanned = compare!(comm.exscan, iexscan, exscan_init(mine(rank, len), len, ordered()));
    let in_place = output(comm.iexscan(InPlace, mine(rank, len), ordered()))?;
    assert_eq!(in_place, if rank == 0 { mine(0, len) } else { scanned });
    uneven(comm, len)
}

fn twice_without_input(mut bcast: PersistentCollective<(), Vec<Odd>>) -> Result<Vec<Odd>, Error> {
    for _ in 0..2 {
        bcast.start()?;
        while bcast.test().transpose()?.is_none() {}
    }
    bcast.output().cloned()
}

fn uneven(comm: &Comm, len: usize) -> Result<(), Error> {
    let (rank, n) = (comm.rank().0, comm.size());
    let own = rank as usize;
    let lens: Vec<usize> = (0..n as usize).map(|rank| rank * 5 % 3 * len).collect();
    let (blocks, total) = (consecutive(lens.clone()), lens.iter().sum::<usize>());
    // The buffers are longer than the blocks.
    let room = total + 2;
    let mut in_place = vec![NONE; room];
    in_place[blocks[own].clone()].copy_from_slice(&mine(rank, lens[own]));
    for root in [Rank(0), Rank(n - 1)] {
        let expected = {
            let mut output = vec![NONE; room];
            comm.gatherv(&mine(rank, lens[own]), &mut output, &blocks, root)?;
            output
        };
        let gathered = output(comm.igatherv(mine(rank, lens[own]), vec![NONE; room], &blocks, root))?;
        assert_eq!(gathered, expected);
        let operation = comm.gatherv_init(mine(rank, lens[own]), vec![NONE; room], &blocks, root);
        assert_eq!(twice(operation)?, expected);
        let scattered = mine(root.0, room)[blocks[own].clone()].to_vec();
        let scatter = comm.iscatterv(mine(rank, room), &blocks, vec![NONE; lens[own]], root);
        assert_eq!(output(scatter)?, scattered);
        let scatter = comm.scatterv_init(mine(rank, room), &blocks, vec![NONE; lens[own]], root);
        assert_eq!(twice(scatter)?, scattered);
        if comm.rank() == root {
            assert_eq!(output(comm.igatherv(InPlace, in_place.clone(), &blocks, root))?, expected);
            comm.iscatterv(mine(rank, room), &blocks, InPlace, root)?.wait()?;
        } else {
            comm.igatherv(mine(rank, lens[own]), vec![], &[], root)?.wait()?;
            assert_eq!(output(comm.iscatterv(vec![], &[], vec![NONE; lens[own]], root))?, scattered);
        }
    }
    let mut gathered = vec![NONE; room];
    comm.allgatherv(&mine(rank, lens[own]), &mut gathered, &blocks)?;
    let mine_to = || mine(rank, lens[own]);
    assert_eq!(output(comm.iallgatherv(mine_to(), vec![NONE; room], &blocks))?, gathered);
    assert_eq!(twice(comm.allgatherv_init(mine_to(), vec![NONE; room], &blocks))?, gathered);
    assert_eq!(output(comm.iallgatherv(InPlace, in_place, &blocks))?, gathered);
    // Each rank sends as many elements to each other rank as it receives from it.
    let shares = consecutive((0..n).map(|other| (rank + other) as usize % 3 * len));
    let room = shares.last().expect("there are ranks").end;
    let mut exchanged = vec![NONE; room];
    comm.alltoallv(&mine(rank, room), &shares, &mut exchanged, &shares)?;
    let exchange = comm.ialltoallv(mine(rank, room), &shares, vec![NONE; room], &shares);
    assert_eq!(output(exchange)?, exchanged);
    let exchange = comm.alltoallv_init(mine(rank, room), &shares, vec![NONE; room], &shares);
    assert_eq!(twice(exchange)?, exchanged);
    assert_eq!(output(comm.ialltoallv(InPlace, &[], mine(rank, room), &shares))?, exchanged);
    let mut block = vec![NONE; lens[own]];
    comm.reduce_scatterv(&mine(rank, total), &mut block, &lens, ordered())?;
    let reduce = comm.ireduce_scatterv(mine(rank, total), vec![NONE; lens[own]], &lens, ordered());
    assert_eq!(output(reduce)?, block);
    let reduce = comm.reduce_scatterv_init(mine(rank, total), vec![NONE; lens[own]], &lens, ordered());
    assert_eq!(twice(reduce)?, block);
    let reduce = comm.ireduce_scatterv(InPlace, mine(rank, total), &lens, ordered());
    assert_eq!(output(reduce)?[..lens[own]], block);
    Ok(())
}

#[test]
fn every_operation_has_the_result_of_the_blocking_call() {
    for n in 1..=6 {
        for len in [0, 1, 100, 3000] {
            all(n, |comm| everything(comm, len));
        }
    }
}

/// Runs ranks that share boards, and must all succeed.
fn all_on_board(n: u32, body: impl Fn(&Comm) -> Result<(), Error> + Sync) {
    let mut settings = Settings::default();
    settings.set_transport("samite-shm").unwrap();
    let results = settings.local(n, |world: World| {
        let comm = world.comm();
        // The first call creates the board.
        comm.barrier().and_then(|()| body(comm))
    });
    results.into_iter().for_each(Result::unwrap);
}

#[test]
fn operations_on_a_board_have_the_results_of_the_blocking_calls() {
    for n in [2, 3, 5] {
        all_on_board(n, |comm| [0, 1, 40].into_iter().try_for_each(|len| everything(comm, len)));
    }
}

#[test]
fn a_round_that_ends_at_its_start_is_active_until_its_result_is_taken() {
    all_on_board(3, |comm| {
        let root = Rank(1);
        let mut bcast = comm.bcast_init(vec![0_u16; 2], root)?;
        for round in 0..20 {
            if comm.rank() == root {
                bcast.output_mut()?.fill(round);
            }
            bcast.start()?;
            // The root waits for no other rank.
            assert!(bcast.is_active());
            assert_eq!(bcast.start(), Err(Error::Active { call: "start" }));
            assert_eq!(bcast.output(), Err(Error::Active { call: "output" }));
            bcast = match round % 4 {
                0 => {
                    let done = bcast.into_request().wait();
                    match done {
                        Ok(Done { buffer, status }) => {
                            assert_eq!((status.peer, status.bytes), (comm.rank(), 4));
                            buffer
                        }
                        Err(failed) => return Err(failed.error),
                    }
                }
                1 => {
                    let mut set = comm.request_set();
                    set.insert(bcast.into_request()).expect("a request of this world");
                    set.wait_any().expect("it is in the set").1?.buffer
                }
                2 => {
                    while bcast.test().transpose()?.is_none() {}
                    bcast
                }
                _ => {
                    bcast.wait()?;
                    bcast
                }
            };
            assert!(!bcast.is_active());
            assert_eq!(bcast.wait(), Err(Error::Inactive));
            assert_eq!(*bcast.output()?, [round; 2]);
            comm.barrier()?;
        }
        // A dropped round is over, since its part is done.
        bcast.start()?;
        drop(bcast);
        comm.barrier()
    });
}

/// A thousand operations are under way at a time. Their ends are taken in any order, and blocking calls and other
/// communicators are between them.
#[test]
fn any_number_of_operations_may_be_under_way() {
    all(4, |comm| {
        let copy = comm.dup()?;
        let mut requests = Vec::new();
        for number in 0..1000_u64 {
            let on = if number % 3 == 0 { &copy } else { comm };
            requests.push((number, on.iallreduce(vec![number + u64::from(comm.rank().0)], vec![0], Sum)?));
            if number % 100 == 50 {
                comm.barrier()?;
            }
        }
        if comm.rank().0 % 2 == 0 {
            requests.reverse();
        }
        for (number, request) in requests {
            assert_eq!(output(Ok(request))?, [4 * number + 6]);
        }
        comm.barrier()
    });
}

#[test]
fn a_set_takes_operations_beside_messages_and_rounds() {
    all(3, |comm| {
        let to = Rank((comm.rank().0 + 1) % 3);
        let mut set = comm.request_set::<AnyBuffer>();
        let mut sum = comm.allreduce_init(vec![comm.rank().0], vec![0], Sum)?;
        let receive = set.insert(comm.irecv(vec![0_u32], samite::Source::ANY, 7)?.into_any()).unwrap();
        let bcast = set.insert(comm.ibcast(vec![comm.rank().0 + 4], Rank(2))?.into_any()).unwrap();
        let max = comm.iallreduce(InPlace, vec![comm.rank().0], Max)?.into_any();
        let max = set.insert(max).unwrap();
        sum.start()?;
        let sum = set.insert(sum.into_request().into_any()).unwrap();
        comm.send(&[comm.rank().0], to, 7)?;
        while let Some((key, end)) = set.wait_any() {
            let buffer = end?.buffer;
            if key == receive {
                assert_eq!(buffer.downcast::<Vec<u32>>().unwrap(), [(comm.rank().0 + 2) % 3]);
            } else if key == bcast {
                let buffer = buffer.downcast::<(InPlace, Vec<u32>)>().unwrap_err();
                assert_eq!(buffer.downcast::<Vec<u32>>().unwrap(), [6]);
            } else if key == max {
                let buffer = buffer.downcast::<PersistentCollective<(), Vec<u32>>>().unwrap_err();
                assert_eq!(buffer.downcast::<(InPlace, Vec<u32>)>().unwrap().1, [2]);
            } else {
                assert_eq!(key, sum);
                let sum = buffer.downcast::<PersistentCollective<Vec<u32>, Vec<u32>>>().unwrap();
                assert_eq!(*sum.output()?, [3]);
            }
        }
        Ok(())
    });
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn operations_can_be_awaited_and_have_callbacks() {
    all(4, |comm| {
        let sum = block_on(async {
            comm.ibarrier()?.await?;
            let sum = comm.iallreduce(vec![comm.rank().0], vec![0], Sum)?;
            comm.ibarrier()?.await?;
            Ok::<_, Error>(sum.await?.buffer.1)
        })?;
        assert_eq!(sum, [6]);
        let (sender, ends) = channel();
        comm.iallreduce(InPlace, vec![comm.rank().0; 3], Max)?.on_end(move |end| {
            sender.send(end.map(|Done { buffer, .. }| buffer.1)).expect("the test waits for it");
        });
        assert_eq!(ends.recv().expect("it is called")?, [3; 3]);
        Ok(())
    });
}

/// A cancel from another thread ends the operation although no thread of the program makes a call.
#[test]
fn a_cancel_wakes_the_future_of_an_operation() {
    all(2, |comm| {
        if comm.rank() == Rank(1) {
            return comm.recv(&mut [0_u8], Rank(0), 1).map(drop);
        }
        let token = CancelToken::new();
        let barrier = comm.with_cancel(&token).ibarrier()?;
        let end = thread::scope(|threads| {
            let waiting = threads.spawn(|| block_on(barrier).map(drop).map_err(Error::from));
            token.cancel();
            waiting.join().unwrap()
        });
        assert!(matches!(end, Err(Error::Cancelled { .. })), "{end:?}");
        comm.send(&[0_u8], Rank(1), 1)
    });
}

/// The ends of an operation at the rank that gives it up, which the other ranks get to know.
#[test]
fn what_one_rank_gives_up_the_others_do_not_wait_for() {
    all(4, |comm| {
        let work = comm.dup()?;
        for round in 0..6 {
            let mut request = work.iallreduce(vec![1_u32], vec![0], Sum)?;
            if comm.rank() == Rank(3) {
                match round {
                    0 | 1 => drop(request),
                    2 => {
                        request.cancel();
                        let end = output(Ok(request));
                        assert!(matches!(
                            end,
                            Ok(_) | Err(Error::Cancelled { .. } | Error::Abandoned { .. })
                        ));
                    }
                    3 => drop(request.into_future()),
                    4 => drop(request.into_any()),
                    _ => {
                        let mut set = work.request_set();
                        set.insert(request).unwrap();
                    }
                }
            } else {
                let end = loop {
                    match request.test() {
                        Some(end) => break end,
                        None => thread::yield_now(),
                    }
                };
                match end {
                    Ok(done) => assert_eq!(done.buffer, (vec![1], vec![4])),
                    Err(failed) => {
                        assert!(
                            matches!(failed.error, Error::Abandoned { rank: Rank(3), .. }),
                            "{:?}",
                            failed.error
                        );
                        assert_eq!(failed.buffer.expect("nothing accesses it").0, [1]);
                    }
                }
            }
            comm.barrier()?;
        }
        everything(&work, 10)
    });
}

#[test]
fn a_persistent_operation_can_be_started_after_each_kind_of_end() {
    all(2, |comm| {
        let bounded = comm.dup()?.with_timeout(Duration::from_millis(20));
        let mut sum = bounded.allreduce_init(vec![comm.rank().0], vec![0], Sum)?;
        assert_eq!(sum.wait(), Err(Error::Inactive));
        assert_eq!(sum.test(), Some(Err(Error::Inactive)));
        for round in 0..5 {
            if comm.rank() == Rank(0) || round == 4 {
                sum.start()?;
                assert!(sum.is_active());
                assert_eq!(sum.start(), Err(Error::Active { call: "start" }));
                assert!(matches!(sum.input_mut(), Err(Error::Active { .. })));
                if round == 1 {
                    sum.cancel();
                }
                let end = sum.wait();
                assert!(!sum.is_active());
                match (round, end) {
                    (4, Ok(())) => assert_eq!(*sum.output()?, [1]),
                    (1, Err(Error::Cancelled { .. })) | (0 | 2 | 3, Err(Error::TimedOut { .. })) => {}
                    (_, end) => panic!("{end:?}"),
                }
                assert_eq!(*sum.input()?, [comm.rank().0]);
            } else {
                // This rank takes part too late.
                comm.barrier()?;
                sum.start()?;
                let end = sum.wait();
                assert!(matches!(end, Err(Error::Abandoned { .. }) | Ok(())), "{end:?}");
                continue;
            }
            if round < 4 {
                comm.barrier()?;
            }
        }
        sum.input_mut()?.clear();
        let wrong =
            Error::WrongLength { call: "PersistentCollective::start", what: "input", len: 0, expected: 1 };
        assert_eq!(sum.start(), Err(wrong));
        assert!(sum.input()?.is_empty());
        Ok(())
    });
}

/// While an operation is under way, a later one fails. The messages of the first one are kept.
#[test]
fn a_failure_leaves_an_earlier_operation_its_messages() {
    all(2, |comm| {
        let work = comm.dup()?;
        if comm.rank() == Rank(0) {
            let first = work.iallreduce(vec![1_u32], vec![0], Sum)?;
            let second = work.ibarrier()?;
            second.cancel();
            assert!(matches!(second.wait().map_err(Error::from), Err(Error::Cancelled { .. })));
            comm.send(&[0_u8], Rank(1), 2)?;
            // The message of the other rank for `first` has arrived, and this call discards messages.
            comm.recv(&mut [0_u8], Rank(1), 1)?;
            let third = work.ibarrier()?;
            assert_eq!(output(Ok(first))?, [3]);
            third.wait()?;
        } else {
            let first = work.iallreduce(vec![2_u32], vec![0], Sum)?;
            comm.send(&[0_u8], Rank(0), 1)?;
            assert_eq!(output(Ok(first))?, [3]);
            // Before that the other rank's barrier could end.
            comm.recv(&mut [0_u8], Rank(0), 2)?;
            let second = work.ibarrier()?.wait().map_err(Error::from);
            assert!(matches!(second, Ok(_) | Err(Error::Abandoned { .. })), "{second:?}");
            work.ibarrier()?.wait()?;
        }
        everything(&work, 3)
    });
}

#[test]
fn misuse_is_an_error_before_anything_is_sent() {
    all(3, |comm| {
        let (me, other) = (comm.rank(), Rank((comm.rank().0 + 1) % 3));
        let failed = comm.iallreduce(vec![1_u8; 2], vec![0; 3], Sum).unwrap_err();
        let wrong = Error::WrongLength { call: "iallreduce", what: "output", len: 3, expected: 2 };
        assert_eq!((failed.error, failed.buffer), (wrong, Some((vec![1; 2], vec![0; 3]))));
        let error = |call| Error::NotInPlace { call };
        assert_eq!(comm.ibcast::<u8, _>(InPlace, me).unwrap_err().error, error("ibcast"));
        assert_eq!(comm.igather(InPlace, vec![0_u8; 3], other).unwrap_err().error, error("igather"));
        assert_eq!(comm.ireduce(InPlace, vec![0_u8; 3], Sum, other).unwrap_err().error, error("ireduce"));
        assert_eq!(comm.iscatter(vec![0_u8; 3], InPlace, other).unwrap_err().error, error("iscatter"));
        assert_eq!(comm.iscatter::<u8, _, _>(InPlace, vec![0], me).unwrap_err().error, error("iscatter"));
        assert_eq!(comm.iallgather(vec![0_u8; 3], InPlace).unwrap_err().error, error("iallgather"));
        assert_eq!(comm.igatherv(InPlace, vec![0_u8], &[], other).unwrap_err().error, error("igatherv"));
        assert_eq!(comm.iscatterv(vec![0_u8], &[], InPlace, other).unwrap_err().error, error("iscatterv"));
        let init = comm.reduce_scatterv_init(vec![0_u8; 3], InPlace, &[1; 3], Sum).unwrap_err();
        assert_eq!(init, error("reduce_scatterv_init"));
        let invalid = comm.ibcast(vec![0_u8], Rank(3)).unwrap_err().error;
        assert_eq!(invalid, Error::InvalidRank { rank: Rank(3), size: 3 });
        let blocks = comm.iallgatherv(vec![0_u8], vec![0; 3], &consecutive([1])).unwrap_err().error;
        assert!(matches!(blocks, Error::WrongBlocks { call: "iallgatherv", .. }));
        let alone = comm.self_comm()?;
        if comm.rank().0 < 2 {
            let inter = alone.create_intercomm(Rank(0), comm, Rank(1 - comm.rank().0), 0)?;
            let scan = inter.iscan(vec![0_u8], vec![0], Sum).unwrap_err().error;
            assert_eq!(scan, Error::NeedsOneGroup);
        }
        everything(comm, 3)
    });
}

#[test]
fn a_panic_of_the_operation_unwinds_in_the_call_that_takes_the_result() {
    all(4, |comm| {
        let work = comm.dup()?;
        let rank = comm.rank().0;
        let op = || {
            commuting(move |from: &[u32], into: &mut [u32]| {
                assert!(rank != 0, "the operation fails at rank 0");
                from.iter().zip(into).for_each(|(a, b)| *b += a);
            })
        };
        let request = work.iallreduce(vec![1], vec![0], op())?;
        comm.barrier()?;
        match (rank, catch_unwind(AssertUnwindSafe(|| output(Ok(request))))) {
            (0, Err(payload)) => {
                assert_eq!(payload.downcast_ref::<&str>(), Some(&"the operation fails at rank 0"));
            }
            (1..=3, Ok(Ok(sum))) => assert_eq!(sum, [4]),
            (1..=3, Ok(Err(Error::Abandoned { rank: Rank(0), .. }))) => {}
            (_, ended) => panic!("rank {rank}: {:?}", ended.map_err(|_| "a panic")),
        }
        let mut sum = work.allreduce_init(vec![1], vec![0], op())?;
        sum.start()?;
        let ended = catch_unwind(AssertUnwindSafe(|| sum.wait()));
        assert_eq!(ended.is_err(), rank == 0);
        assert_eq!(*sum.input()?, [1], "the operation has its buffers again");
        comm.barrier()?;
        everything(&work, 5)
    });
}

#[test]
fn a_member_that_leaves_ends_the_operations_that_need_it() {
    let results = samite::local(3, |world| {
        let comm = world.comm();
        let part = comm.split(Some(0), -i64::from(comm.rank().0))?.expect("it has a colour");
        comm.barrier()?;
        if comm.rank() == Rank(2) {
            // This rank starts the operation, but leaves before its end.
            let _started = part.iallreduce(vec![1], vec![0], Sum)?;
            return world.leave();
        }
        let request = part.iallreduce(vec![1], vec![0], Sum)?;
        let barrier = part.ibarrier()?;
        match output(Ok(request)) {
            Ok(sum) => assert_eq!(sum, [3]),
            Err(Error::Abandoned { rank, .. }) => assert_eq!(rank, Rank(0)),
            Err(Error::PeerFailed { rank, world_rank, cause, .. }) => {
                assert_eq!((rank, world_rank, cause), (Rank(0), Rank(2), Cause::Left));
            }
            Err(error) => panic!("{error:?}"),
        }
        match barrier.wait().map_err(Error::from) {
            Err(Error::PeerFailed { world_rank: Rank(2), cause: Cause::Left, .. }) => Ok(()),
            end => panic!("{end:?}"),
        }
    });
    assert_eq!(results, vec![Ok(()); 3]);
}

/// The world ends while operations are under way. Their requests end with an error.
#[test]
fn the_end_of_the_world_ends_its_operations() {
    let ends = samite::local(2, |world| {
        let comm = world.comm().clone();
        let request = match comm.rank() {
            Rank(0) => Some(comm.iallreduce(vec![1], vec![0], Sum)?),
            _ => None,
        };
        let mut barrier = comm.barrier_init()?;
        if comm.rank() == Rank(0) {
            barrier.start()?;
        }
        drop(world);
        if let Some(request) = request {
            assert!(matches!(output(Ok(request)), Err(Error::Closed { .. })));
            assert!(matches!(barrier.wait(), Err(Error::Closed { .. })));
            assert_eq!(barrier.input(), Err(Error::BufferKept));
        }
        assert!(matches!(comm.ibarrier().map_err(Error::from), Err(Error::Closed { .. })));
        Ok::<(), Error>(())
    });
    assert_eq!(ends, [Ok(()), Ok(())]);
}

#[test]
fn lanes_have_operations_of_their_own() {
    let mut settings = Settings::default();
    settings.set_lanes(2).unwrap();
    let results = settings.local(3, |world| {
        let comm = world.comm().dup()?;
        thread::scope(|threads| {
            let lanes: Vec<_> = (0..2)
                .map(|number| {
                    let lane = comm.lane(number).unwrap();
                    threads.spawn(move || (0..10).try_for_each(|_| everything(&lane, number * 10)))
                })
                .collect();
            lanes.into_iter().try_for_each(|lane| lane.join().unwrap())
        })
    });
    assert_eq!(results, vec![Ok(()); 3]);
}

/// A value that calls Samite when it is dropped, and counts its drops.
struct Probing(Comm, Arc<AtomicUsize>);

impl Drop for Probing {
    fn drop(&mut self) {
        assert_eq!(self.0.try_probe(self.0.rank(), 99), Ok(None));
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns a reduction that owns a value, which calls Samite when it is dropped, and the last handle of a communicator.
fn owner(comm: &Comm, drops: &Arc<AtomicUsize>) -> impl ReduceOp<u32> + 'static {
    let own = (Probing(comm.clone(), Arc::clone(drops)), comm.dup().unwrap());
    commuting(move |from: &[u32], into: &mut [u32]| {
        assert_eq!(own.0.0.size(), own.1.size());
        into[0] += from[0];
    })
}

#[test]
fn what_a_reduction_owns_may_call_the_library_when_it_is_dropped() {
    all(2, |comm| {
        let drops = Arc::new(AtomicUsize::new(0));
        let dropped = || drops.load(Ordering::Relaxed);
        for len in [1, 100_000] {
            let mine = || vec![1; len];
            let before = dropped();
            let sum = owner(comm, &drops);
            assert_eq!(dropped(), before);
            comm.iallreduce(mine(), vec![0; len], sum)?.wait()?;
            assert_eq!(dropped(), before + 1);
            // The other rank begins later, so the operation ends in a later call.
            let sum = owner(comm, &drops);
            if comm.rank() == 1 {
                comm.recv_vec::<u8>(Rank(0), 1)?;
            }
            drop(comm.iallreduce(mine(), vec![0; len], sum)?);
            if comm.rank() == 0 {
                assert_eq!(dropped(), before + 2);
                comm.send(&[0_u8], Rank(1), 1)?;
            }
            comm.barrier()?;
            assert_eq!(dropped(), before + 2);
            let mut persistent = comm.allreduce_init(mine(), vec![0; len], owner(comm, &drops))?;
            persistent.start()?;
            persistent.wait()?;
            persistent.start()?;
            drop(persistent);
            comm.barrier()?;
            assert_eq!(dropped(), before + 3);
        }
        Ok(())
    });
}
