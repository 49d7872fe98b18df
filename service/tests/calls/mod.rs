//! Every call of a communicator, for tests in which all must be refused.

use std::time::Duration;

use samite::reduction::Max;
use samite::{Comm, Error, Rank, Source};

/// Returns the error of each refused call, with its name. `comm` has at least two ranks.
///
/// # Panics
/// If a call succeeds, or keeps a buffer.
pub(crate) fn refusals(comm: &Comm) -> Vec<(&'static str, Error)> {
    let peer = comm.rank().0 ^ 1;
    let mut buffer = [0_u8; 4];
    let size = comm.size() as usize;
    let none = vec![0..0; size];
    let owned = |failed: samite::Failed<Vec<u8>>| {
        assert_eq!(failed.buffer.as_deref(), Some(&[7_u8][..]), "the buffer is given back");
        failed.error
    };
    let all = vec![
        ("send", comm.send(&[1_u8], Rank(peer), 0).unwrap_err()),
        ("recv", comm.recv(&mut buffer, Rank(peer), 0).unwrap_err()),
        ("recv from any", comm.recv(&mut buffer, Source::ANY, 0).unwrap_err()),
        ("recv_vec", comm.recv_vec::<u8>(Rank(peer), 0).unwrap_err()),
        ("sendrecv", comm.sendrecv(&[1_u8], Rank(peer), 0, &mut buffer, Rank(peer), 0).unwrap_err()),
        ("sendrecv_replace", comm.sendrecv_replace(&mut buffer, Rank(peer), 0, Rank(peer), 0).unwrap_err()),
        ("isendrecv", comm.isendrecv(vec![7_u8], Rank(peer), 0, vec![7_u8], None, 0).unwrap_err().error),
        ("isend", owned(comm.isend(vec![7_u8], Rank(peer), 0).unwrap_err())),
        ("irecv", owned(comm.irecv(vec![7_u8], Rank(peer), 0).unwrap_err())),
        ("scope isend", comm.scope(|scope| scope.isend(&[1_u8], Rank(peer), 0).map(drop)).unwrap_err()),
        ("scope irecv", comm.scope(|scope| scope.irecv(&mut buffer, Rank(peer), 0).map(drop)).unwrap_err()),
        ("send to none", comm.send(&[1_u8], None, 0).unwrap_err()),
        ("isend to none", owned(comm.isend(vec![7_u8], None, 0).unwrap_err())),
        ("recv from none", comm.recv(&mut buffer, None, 0).unwrap_err()),
        ("scope isend to none", comm.scope(|scope| scope.isend(&[1_u8], None, 0).map(drop)).unwrap_err()),
        ("probe of none", comm.probe(None, 0).unwrap_err()),
        ("probe", comm.probe(Rank(peer), 0).unwrap_err()),
        ("try_probe", comm.try_probe(Rank(peer), 0).unwrap_err()),
        ("claim", comm.claim(Rank(peer), 0).unwrap_err()),
        ("try_claim", comm.try_claim(Rank(peer), 0).unwrap_err()),
        ("incarnation", comm.incarnation(Rank(peer)).unwrap_err()),
        ("wait_for_restart", comm.wait_for_restart(Rank(peer), Duration::from_secs(600)).unwrap_err()),
        ("barrier", comm.barrier().unwrap_err()),
        ("bcast", comm.bcast(&mut buffer, Rank(peer)).unwrap_err()),
        ("gather", comm.gather(&buffer, &mut [], Rank(peer)).unwrap_err()),
        ("gather_in_place", comm.gather_in_place(&mut vec![0_u8; size]).unwrap_err()),
        ("scatter", comm.scatter(&[], &mut buffer, Rank(peer)).unwrap_err()),
        ("scatter_in_place", comm.scatter_in_place(&vec![0_u8; size]).unwrap_err()),
        ("allgather", comm.allgather(&[1_u8], &mut vec![0; size]).unwrap_err()),
        ("allgather_in_place", comm.allgather_in_place(&mut vec![0_u8; size]).unwrap_err()),
        ("alltoall", comm.alltoall(&vec![0_u8; size], &mut vec![0; size]).unwrap_err()),
        ("alltoall_in_place", comm.alltoall_in_place(&mut vec![0_u8; size]).unwrap_err()),
        ("reduce", comm.reduce(&buffer, &mut [], Max, Rank(peer)).unwrap_err()),
        ("reduce_in_place", comm.reduce_in_place(&mut buffer, Max).unwrap_err()),
        ("allreduce", comm.allreduce(&[1_u8], &mut [0], Max).unwrap_err()),
        ("allreduce_in_place", comm.allreduce_in_place(&mut buffer, Max).unwrap_err()),
        ("reduce_scatter", comm.reduce_scatter(&vec![0_u8; size], &mut [0], Max).unwrap_err()),
        ("reduce_scatter_in_place", comm.reduce_scatter_in_place(&mut vec![0_u8; size], Max).unwrap_err()),
        ("scan", comm.scan(&[1_u8], &mut [0], Max).unwrap_err()),
        ("scan_in_place", comm.scan_in_place(&mut buffer, Max).unwrap_err()),
        ("exscan", comm.exscan(&[1_u8], &mut [0], Max).unwrap_err()),
        ("exscan_in_place", comm.exscan_in_place(&mut buffer, Max).unwrap_err()),
        ("gatherv", comm.gatherv(&buffer, &mut [], &[], Rank(peer)).unwrap_err()),
        ("gatherv_in_place", comm.gatherv_in_place(&mut buffer, &none).unwrap_err()),
        ("scatterv", comm.scatterv(&[], &[], &mut buffer, Rank(peer)).unwrap_err()),
        ("scatterv_in_place", comm.scatterv_in_place(&buffer, &none).unwrap_err()),
        ("allgatherv", comm.allgatherv(&[], &mut buffer, &none).unwrap_err()),
        ("allgatherv_in_place", comm.allgatherv_in_place(&mut buffer, &none).unwrap_err()),
        ("alltoallv", comm.alltoallv(&[], &none, &mut buffer, &none).unwrap_err()),
        ("alltoallv_in_place", comm.alltoallv_in_place(&mut buffer, &none).unwrap_err()),
        ("reduce_scatterv", comm.reduce_scatterv(&[], &mut [0_u8; 0], &vec![0; size], Max).unwrap_err()),
        (
            "reduce_scatterv_in_place",
            comm.reduce_scatterv_in_place(&mut [0_u8; 0], &vec![0; size], Max).unwrap_err(),
        ),
    ];
    assert_eq!((comm.transport(Rank(peer)), comm.explain(Rank(peer))), (None, None));
    assert_eq!(comm.stats().rank, comm.rank());
    all
}
