//! Operations on two levels: hosts with different numbers of ranks, whose ranks are not consecutive.

use super::*;
use crate::algorithms::hosts::{Hosts, TwoLevels};

/// Returns ways in which ranks are distributed over hosts.
fn distributions(size: u32) -> impl Iterator<Item = Arc<Hosts>> {
    let cyclic = [1, 2, 3, 5].map(|hosts| Hosts::new((0..size).map(|rank| rank % hosts)));
    let in_blocks = [1, 3, 4].map(|ranks| Hosts::new((0..size).map(|rank| rank / ranks)));
    // The hosts have different numbers of ranks, and one of them has most.
    let scattered = Hosts::new((0..size).map(|rank| (rank * rank + rank / 3) % 7 / 2));
    let one_elsewhere = Hosts::new((0..size).map(|rank| u32::from(rank == size / 2)));
    cyclic.into_iter().chain(in_blocks).chain([scattered, one_elsewhere]).map(Arc::new)
}

/// Calls `check` with each distribution of some sizes, and with each way of acting within a host.
fn each(sizes: impl Iterator<Item = u32>, check: impl Fn(u32, &Arc<Hosts>, Option<usize>)) {
    for size in sizes {
        for hosts in distributions(size) {
            [None, Some(1), Some(4), Some(100)].into_iter().for_each(|piece| check(size, &hosts, piece));
        }
    }
}

fn on_hosts(hosts: &Arc<Hosts>, piece: Option<usize>, operation: Plan) -> Plan {
    Plan::TwoLevels(TwoLevels { operation: Box::new(operation), hosts: Arc::clone(hosts), piece })
}

/// Returns the number of ranks of the host that has most.
fn most(size: u32, hosts: &Hosts) -> u32 {
    (0..size).map(|rank| hosts.beside(rank).len() as u32).max().unwrap()
}

/// Returns the rounds of a gather, a broadcast or a reduction of `ranks` ranks of a host.
fn within(ranks: u32, piece: Option<usize>, len: usize) -> u32 {
    match piece {
        _ if ranks == 1 => 0,
        Some(piece) if ranks <= samite_fabric::shm::board::RANKS_MAX => len.div_ceil(piece).max(1) as u32,
        _ => log(2, ranks),
    }
}

#[test]
fn barriers() {
    each(sizes().chain([100]), |size, hosts, piece| {
        let plan = on_hosts(hosts, piece, Plan::Barrier(barrier::Algorithm::Dissemination));
        let here = within(most(size, hosts), piece, 0);
        let rounds = cost(size, &plan).rounds;
        assert!(rounds <= 2 * here + log(2, hosts.count()), "{rounds} rounds of {plan:?}");
    });
}

/// One rank waits before the barrier for a message that does not come.
#[test]
fn no_rank_leaves_a_barrier_before_all_ranks_have_entered_it() {
    each(2..=12, |size, hosts, piece| {
        let plan = on_hosts(hosts, piece, Plan::Barrier(barrier::Algorithm::Dissemination));
        for absent in 0..size {
            let rank_of = |rank| match rank == absent {
                true => Rank::without_values(Steps::new(
                    [Step::Receive { from: rank, round: 99, into: Span::scratch(0..1) }, Step::WAIT]
                        .into_iter(),
                )),
                false => Rank::without_values(plan.steps(Place::new(rank, size))),
            };
            let mut run = Run::new((0..size).map(rank_of), hosts_of(&plan));
            assert!(run.finish().is_err());
            assert!(run.ranks.iter().all(|rank| !rank.has_ended), "{plan:?} without {absent}");
        }
    });
}

#[test]
fn broadcasts_and_reductions() {
    each(sizes().filter(|size| *size < 10 || size % 8 == 1), |size, hosts, piece| {
        for root in (0..size).filter(|root| size < 10 || root % 8 == 3) {
            for (len, in_place) in [(0, false), (1, true), (9, false), (9, true)] {
                let algorithm = bcast::Algorithm::KNomial { k: 2 };
                let plan = on_hosts(hosts, piece, Plan::Bcast { algorithm, root, len });
                let Cost { rounds, sent } = cost(size, &plan);
                let here = within(most(size, hosts), piece, len);
                assert!(rounds <= log(2, hosts.count()) + here, "{rounds} rounds of {plan:?}");
                if piece.is_some() {
                    let hosts_with_board = (0..size)
                        .filter(|rank| hosts.beside(*rank)[0] == *rank && hosts.beside(*rank).len() > 1);
                    let all = hosts.count() as usize - 1 + hosts_with_board.count();
                    assert_eq!(sent.iter().sum::<usize>(), len * all, "{plan:?}");
                }
                let (algorithm, commutes) = (reduce::Algorithm::Binomial, true);
                let reduce = Plan::Reduce { algorithm, root, len, commutes, in_place };
                let plan = on_hosts(hosts, piece, reduce);
                let Cost { rounds, sent } = cost(size, &plan);
                assert!(rounds <= log(2, hosts.count()) + here, "{rounds} rounds of {plan:?}");
                assert_eq!(sent.iter().sum::<usize>(), len * (size as usize - 1));
                let algorithm = reduce::Algorithm::Rabenseifner;
                let reduce = Plan::Reduce { algorithm, root, len, commutes, in_place };
                let rounds = cost(size, &on_hosts(hosts, piece, reduce)).rounds;
                assert!(rounds <= 2 * log(2, hosts.count()) + here, "{rounds} rounds on {hosts:?}");
            }
        }
    });
}

#[test]
fn operations_whose_result_all_ranks_get() {
    each(sizes().filter(|size| *size < 10 || size % 8 == 1).chain([100]), |size, hosts, piece| {
        for (len, in_place) in [(0, false), (1, true), (9, false), (9, true)] {
            for algorithm in [
                allreduce::Algorithm::RecursiveDoubling,
                allreduce::Algorithm::Rabenseifner,
                allreduce::Algorithm::Ring,
            ] {
                let allreduce = Plan::Allreduce { algorithm, len, commutes: true, in_place };
                cost(size, &on_hosts(hosts, piece, allreduce));
            }
            if size > 33 {
                continue;
            }
            let ring = Some(allgather::Algorithm::Ring);
            let equal = Some(allgather::Algorithm::Bruck).filter(|_| hosts.is_even());
            for algorithm in ring.into_iter().chain(equal) {
                let allgather = Plan::Allgather { algorithm, blocks: Blocks::Equal(len), in_place };
                cost(size, &on_hosts(hosts, piece, allgather));
            }
        }
    });
}

/// A rank takes its part in its host's stages alone: it exchanges messages with other hosts only if it is a leader.
#[test]
fn only_leaders_exchange_messages_with_other_hosts() {
    each(sizes(), |size, hosts, piece| {
        let (algorithm, root, len) = (allreduce::Algorithm::RecursiveDoubling, size / 2, 3);
        let (commutes, in_place) = (true, false);
        let allreduce = on_hosts(hosts, piece, Plan::Allreduce { algorithm, len, commutes, in_place });
        let algorithm = bcast::Algorithm::KNomial { k: 3 };
        let bcast = on_hosts(hosts, piece, Plan::Bcast { algorithm, root, len });
        for rank in 0..size {
            let leaders = [hosts.beside(rank)[0], root];
            for (plan, is_leader) in [
                (&allreduce, leaders[0] == rank),
                (&bcast, leaders[0] == rank && !hosts.are_together(rank, root) || rank == root),
            ] {
                let elsewhere = plan.steps(Place::new(rank, size)).any(|step| match step {
                    Step::Send { to: other, .. } | Step::Receive { from: other, .. } => {
                        !hosts.are_together(rank, other)
                    }
                    _ => false,
                });
                assert!(is_leader || !elsewhere, "rank {rank} of {plan:?}");
            }
            verify_partners(size, rank, |_| allreduce.clone()).unwrap();
        }
    });
}
