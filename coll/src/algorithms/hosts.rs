//! Operations on two levels, for ranks on several hosts.
//!
//! One rank of each host is its *leader*. The ranks of a host combine their data at the leader, the leaders carry out
//! the operation between the hosts, and each leader passes the result on in its host. So a host sends and receives as
//! if it had one rank. The ranks of a host need not be consecutive, and the hosts may have different numbers of ranks.
//!
//! The leader is the first rank of a host. In an operation with a root, the root is the leader of its host. On a host
//! that has a [board](samite_fabric::shm::board), its ranks use it; otherwise they send messages along binomial trees.
//!
//! Cost: the rounds of the operation between the leaders, and those of the operations within the host that has most
//! ranks. A barrier and an allgather have a gather and a broadcast there, an allreduce has a reduction and a broadcast,
//! a broadcast has a broadcast, and a reduction has a reduction. A reduction must commute, because it combines the
//! elements of each host first.
//!
//! Source: Kielmann, Hofman, Bal, Plaat and Bhoedjang: *MagPIe: MPI's Collective Communication Operations for Clustered
//! Wide Area Systems*. PPoPP 1999.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use samite_fabric::shm::board::RANKS_MAX;

use super::board::pieces_of;
use super::{allgather, allreduce, barrier, bcast, gather, reduce};
use crate::schedule::{Blocks, Buffer, Place, Plan, Ranks, Span, Stage, Step, Steps, end_of, source};

/// The hosts of the ranks of a group. They are numbered in the order of their first ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The ranks of each host, in ascending order.
    ranks: Box<[Arc<[u32]>]>,
    /// The host of each rank.
    of_rank: Box<[u32]>,
    /// The first rank of each host.
    firsts: Arc<[u32]>,
    /// The number of ranks of the hosts before each host.
    before: Box<[u32]>,
}

impl Hosts {
    /// Returns the hosts of ranks. `hosts` contains a number for the host of each rank.
    ///
    /// ```
    /// let hosts = samite_coll::algorithms::hosts::Hosts::new([7, 2, 7]);
    /// assert_eq!((hosts.count(), hosts.beside(2), hosts.is_even()), (2, &[0, 2][..], false));
    /// ```
    #[must_use]
    pub fn new(hosts: impl IntoIterator<Item = u32>) -> Self {
        let mut numbers = HashMap::new();
        let (mut ranks, mut of_rank) = (Vec::<Vec<u32>>::new(), Vec::new());
        for (rank, host) in (0..).zip(hosts) {
            let number: u32 = *numbers.entry(host).or_insert_with(|| {
                ranks.push(Vec::new());
                ranks.len() as u32 - 1
            });
            ranks[number as usize].push(rank);
            of_rank.push(number);
        }
        let mut next = 0;
        let before = ranks.iter().map(|ranks| {
            next += ranks.len() as u32;
            next - ranks.len() as u32
        });
        Self {
            before: before.collect(),
            firsts: ranks.iter().map(|ranks| ranks[0]).collect(),
            ranks: ranks.into_iter().map(Into::into).collect(),
            of_rank: of_rank.into(),
        }
    }

    /// Returns the number of hosts.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Returns the ranks on the host of a rank.
    #[must_use]
    pub fn beside(&self, rank: u32) -> &[u32] {
        self.of(rank)
    }

    /// Returns true if all hosts have the same number of ranks.
    #[must_use]
    pub fn is_even(&self) -> bool {
        self.ranks.iter().all(|ranks| ranks.len() == self.ranks[0].len())
    }

    /// Returns true if two ranks are on the same host.
    pub(crate) fn are_together(&self, one: u32, other: u32) -> bool {
        self.of_rank[one as usize] == self.of_rank[other as usize]
    }

    fn of(&self, rank: u32) -> &Arc<[u32]> {
        &self.ranks[self.of_rank[rank as usize] as usize]
    }

    /// Returns the ranks in the order of their hosts.
    fn in_order(&self) -> impl Iterator<Item = u32> {
        self.ranks.iter().flat_map(|ranks| ranks.iter().copied())
    }

    /// Returns the places of the ranks of a host in the order of the hosts.
    fn run(&self, host: u32) -> Range<usize> {
        let before = self.before[host as usize] as usize;
        before..before + self.ranks[host as usize].len()
    }

    /// Returns the leader of each host in an operation with this root, if it has one.
    fn leaders(&self, root: Option<u32>) -> Arc<[u32]> {
        match root {
            Some(root) if self.of(root)[0] != root => {
                let leader = |first: &u32| if self.are_together(*first, root) { root } else { *first };
                self.firsts.iter().map(leader).collect()
            }
            _ => Arc::clone(&self.firsts),
        }
    }
}

/// An operation on two levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoLevels {
    /// The whole operation: a barrier, a broadcast, a reduction, an allreduce, or an allgather of blocks of the same
    /// length. Its algorithm is the one between the leaders.
    pub operation: Box<Plan>,
    /// The hosts of the ranks.
    pub hosts: Arc<Hosts>,
    /// The number of elements in a piece on the boards of the hosts. `None` if the hosts have no boards.
    pub piece: Option<usize>,
}

/// The stages of a rank.
struct Stages {
    /// The gather or reduction of the host, and the operation between the leaders.
    first: Vec<Stage>,
    /// The blocks of an allgather are sorted by host at the leaders: the length of a block.
    sorts: Option<usize>,
    /// The broadcast of the host.
    last: Option<Stage>,
}

impl Stages {
    fn of(first: impl IntoIterator<Item = Option<Stage>>, last: Option<Stage>) -> Self {
        Self { first: first.into_iter().flatten().collect(), sorts: None, last }
    }
}

impl TwoLevels {
    /// Returns true if the rank at a place uses the board of its host.
    pub(crate) fn uses_board(&self, at: Place) -> bool {
        let ranks = self.hosts.of(at.rank()).len();
        self.piece.is_some() && (2..=RANKS_MAX as usize).contains(&ranks)
    }

    pub(crate) fn scratch(&self, at: Place) -> usize {
        let Stages { first, last, .. } = self.stages(at);
        end_of(&first, at, Buffer::Scratch).max(end_of(last.as_slice(), at, Buffer::Scratch))
    }

    pub(crate) fn steps(&self, at: Place) -> Steps {
        let Stages { first, sorts, last } = self.stages(at);
        let hosts = Arc::clone(&self.hosts);
        let sort = sorts.into_iter().flat_map(move |len| {
            let block = move |index: usize| index * len..(index + 1) * len;
            let order: Vec<_> = hosts.in_order().collect();
            order.into_iter().enumerate().map(move |(index, rank)| Step::Copy {
                from: Span::scratch(block(index)),
                into: Span::output(block(rank as usize)),
            })
        });
        let first = first.into_iter().flat_map(move |stage| stage.steps(at));
        Steps::new(first.chain(sort).chain(last.into_iter().flat_map(move |stage| stage.steps(at))))
            .with_empty()
    }

    fn stages(&self, at: Place) -> Stages {
        match *self.operation {
            Plan::Barrier(algorithm) => self.barrier(at, algorithm),
            Plan::Bcast { algorithm, root, len } => self.bcast(at, algorithm, root, len),
            Plan::Reduce { algorithm, root, len, commutes: true, in_place } => {
                self.reduce(at, algorithm, root, len, in_place)
            }
            Plan::Allreduce { algorithm, len, commutes: true, in_place } => {
                self.allreduce(at, algorithm, len, in_place)
            }
            Plan::Allgather { algorithm, blocks: Blocks::Equal(len), in_place } => {
                self.allgather(at, algorithm, len, in_place)
            }
            _ => panic!("this operation has no second level: {:?}", self.operation),
        }
    }

    fn barrier(&self, at: Place, algorithm: barrier::Algorithm) -> Stages {
        let level = Level::new(self, at, None);
        let stages = Stages::of(
            [
                level.inside(level.gather(0), Stage::WHOLE, 0),
                level.between(Plan::Barrier(algorithm), Stage::WHOLE),
            ],
            level.inside(level.bcast(0), Stage::WHOLE, level.pieces(0)),
        );
        let keeps = |stage| Stage { keeps_empty: true, ..stage };
        Stages {
            first: stages.first.into_iter().map(keeps).collect(),
            last: stages.last.map(keeps),
            ..stages
        }
    }

    fn bcast(&self, at: Place, algorithm: bcast::Algorithm, root: u32, len: usize) -> Stages {
        let level = Level::new(self, at, Some(root));
        let across = Plan::Bcast { algorithm, root: self.hosts.of_rank[root as usize], len };
        Stages::of([level.between(across, Stage::WHOLE)], level.inside(level.bcast(len), Stage::WHOLE, 0))
    }

    /// The root has partial results in its output, and the other leaders have them at the start of the scratch buffer.
    fn reduce(
        &self,
        at: Place,
        algorithm: reduce::Algorithm,
        root: u32,
        len: usize,
        in_place: bool,
    ) -> Stages {
        let level = Level::new(self, at, Some(root));
        let is_root = at.rank() == root;
        let (here, partial) = match is_root || level.is_alone() {
            true => (Stage::WHOLE, Stage::WHOLE),
            false => (
                [(Buffer::Input, 0), (Buffer::Scratch, 0), (Buffer::Scratch, len)],
                [(Buffer::Scratch, 0), (Buffer::Output, 0), (Buffer::Scratch, len)],
            ),
        };
        let across = Plan::Reduce {
            algorithm,
            root: self.hosts.of_rank[root as usize],
            len,
            commutes: true,
            in_place: is_root && (in_place || !level.is_alone()),
        };
        let inside = level.reduce(len, is_root && in_place);
        Stages::of([level.inside(inside, here, 0), level.between(across, partial)], None)
    }

    /// The leaders have partial results in their outputs.
    fn allreduce(&self, at: Place, algorithm: allreduce::Algorithm, len: usize, in_place: bool) -> Stages {
        let level = Level::new(self, at, None);
        let own = if level.is_leader() { Buffer::Input } else { source(in_place) };
        let here = [(own, 0), (Buffer::Output, 0), (Buffer::Scratch, 0)];
        let across =
            Plan::Allreduce { algorithm, len, commutes: true, in_place: in_place || !level.is_alone() };
        Stages::of(
            [
                level.inside(level.reduce(len, in_place && level.is_leader()), here, 0),
                level.between(across, Stage::WHOLE),
            ],
            level.inside(level.bcast(len), Stage::WHOLE, level.pieces(len)),
        )
    }

    /// The leaders collect the blocks at the start of the scratch buffer, sorted by host.
    fn allgather(&self, at: Place, algorithm: allgather::Algorithm, len: usize, in_place: bool) -> Stages {
        let level = Level::new(self, at, None);
        let (hosts, all) = (&self.hosts, at.size() as usize * len);
        let own = if in_place { (Buffer::Output, at.rank() as usize * len) } else { (Buffer::Input, 0) };
        let elements = |host: u32| {
            let run = hosts.run(host);
            run.start * len..run.end * len
        };
        let (here, after) = match level.is_leader() {
            true => (elements(hosts.of_rank[at.rank() as usize]).start, all),
            false => (0, 0),
        };
        let here = [own, (Buffer::Scratch, here), (Buffer::Scratch, after)];
        let blocks = match hosts.is_even() {
            true => Blocks::Equal(hosts.ranks[0].len() * len),
            false => Blocks::Listed((0..hosts.count()).map(elements).collect()),
        };
        let across = Plan::Allgather { algorithm, blocks, in_place: true };
        let sorted = [(Buffer::Input, 0), (Buffer::Scratch, 0), (Buffer::Scratch, all)];
        let stages = Stages::of(
            // A rank that is alone on its host copies its block.
            [Some(level.stage(level.gather(len), here, 0)), level.between(across, sorted)],
            level.inside(level.bcast(all), Stage::WHOLE, level.pieces(len)),
        );
        Stages { sorts: level.is_leader().then_some(len), ..stages }
    }
}

/// The part of a rank in the stages of an operation.
struct Level {
    /// The ranks of this rank's host.
    ranks: Arc<[u32]>,
    /// The number of the leader among them.
    leader: u32,
    /// The leaders of all hosts; `None` if this rank is none.
    leaders: Option<Arc<[u32]>>,
    /// The number of elements in a piece on the board of this host, if it has one.
    piece: Option<usize>,
}

impl Level {
    fn new(levels: &TwoLevels, at: Place, root: Option<u32>) -> Self {
        let (hosts, rank) = (&levels.hosts, at.rank());
        assert_eq!(hosts.of_rank.len(), at.size() as usize, "each rank has a host");
        let ranks = Arc::clone(hosts.of(rank));
        let leader_rank = root.filter(|root| hosts.are_together(*root, rank)).unwrap_or(ranks[0]);
        let leader = ranks.binary_search(&leader_rank).expect("the leader is on the host") as u32;
        let leaders = (leader_rank == rank).then(|| hosts.leaders(root));
        let piece = levels.piece.filter(|_| levels.uses_board(at));
        Self { ranks, leader, leaders, piece }
    }

    fn is_leader(&self) -> bool {
        self.leaders.is_some()
    }

    fn is_alone(&self) -> bool {
        self.ranks.len() == 1
    }

    /// Returns the stage of an operation among the ranks of this host.
    fn stage(&self, plan: Plan, buffers: [(Buffer, usize); 3], pieces_before: u32) -> Stage {
        let stage = Stage::new(plan, Ranks::Listed(Arc::clone(&self.ranks)), buffers);
        Stage { pieces_before, ..stage }
    }

    /// Returns the stage of an operation among the ranks of this host, if it has several.
    fn inside(&self, plan: Plan, buffers: [(Buffer, usize); 3], pieces_before: u32) -> Option<Stage> {
        (!self.is_alone()).then(|| self.stage(plan, buffers, pieces_before))
    }

    /// Returns the stage of an operation among the leaders, if this rank is one of them.
    fn between(&self, plan: Plan, buffers: [(Buffer, usize); 3]) -> Option<Stage> {
        let leaders = Arc::clone(self.leaders.as_ref()?);
        Some(Stage::new(plan, Ranks::Listed(leaders), buffers))
    }

    /// Returns the broadcast of the leader's elements.
    fn bcast(&self, len: usize) -> Plan {
        let algorithm = match self.piece {
            Some(piece) => bcast::Algorithm::Board { piece },
            None => bcast::Algorithm::KNomial { k: 2 },
        };
        Plan::Bcast { algorithm, root: self.leader, len }
    }

    /// Returns the gather of blocks to the leader.
    fn gather(&self, len: usize) -> Plan {
        let algorithm = match self.piece {
            Some(piece) => gather::Algorithm::Board { piece },
            None => gather::Algorithm::Binomial,
        };
        Plan::Gather { algorithm, root: self.leader, blocks: Blocks::Equal(len), len, in_place: false }
    }

    /// Returns the reduction to the leader. `in_place` is true if this rank is the leader, and its elements are in the
    /// output.
    fn reduce(&self, len: usize, in_place: bool) -> Plan {
        let algorithm = match self.piece {
            Some(piece) => reduce::Algorithm::Board { piece },
            None => reduce::Algorithm::Binomial,
        };
        Plan::Reduce { algorithm, root: self.leader, len, commutes: true, in_place }
    }

    /// Returns the number of pieces that a gather or a reduction of `len` elements publishes.
    fn pieces(&self, len: usize) -> u32 {
        self.piece.map_or(0, |piece| pieces_of(len, piece))
    }
}
