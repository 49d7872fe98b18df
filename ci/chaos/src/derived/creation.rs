//! Creations of communicators: the plans, which all members compute in the same way, and the results.

use std::time::Instant;

use samite::{Cause, Comm, Creation, Error, Group, Rank};
use samite_fabric::SplitMix64;

use super::handled::Handled;
use super::{BOUND, SLACK, SOON, number_of};
use crate::report::{CreationEnd, Report};

/// A creation that this rank can begin.
pub(super) struct Plan {
    parent: Comm,
    /// The number of the creation.
    key: u64,
    /// The ranks of the job that take part.
    ranks: Vec<u32>,
    depth: u32,
    kind: Kind,
}

enum Kind {
    Dup,
    /// A colour and a key.
    Split(Option<u32>, i64),
    Create(Group, u32),
    /// Splits the parent into two halves, its even and its odd ranks. They are connected afterwards.
    Halves,
    /// Connects the two halves of `peer`. Their leaders are the first two ranks of `peer`.
    Connect {
        peer: Comm,
        remote_leader: Rank,
        tag: u32,
    },
    Merge,
}

/// A communicator that was created.
pub(super) struct Made {
    pub(super) comm: Comm,
    pub(super) id: u64,
    pub(super) depth: u32,
    /// If the communicator is a half of its parent: the creation that connects it with the other half.
    pub(super) connect: Option<Plan>,
}

/// The creations that a rank has begun.
#[derive(Default)]
pub(super) struct Creations(Vec<Begun>);

struct Begun {
    plan: Plan,
    creation: Either,
    since: Instant,
    handled: Handled,
}

enum Either {
    One(Creation<Comm>),
    Some(Creation<Option<Comm>>),
}

impl Plan {
    pub(super) fn dup(parent: &Comm, key: u64) -> Self {
        Self::new(parent, key, 1, Kind::Dup)
    }

    /// Returns a plan for a creation from the world, in which all ranks with this slot get the same communicator.
    pub(super) fn split_by_slot(world: &Comm, key: u64, slot: u32) -> Self {
        let rank = i64::from(world.rank().0);
        Self::new(world, key, 1, Kind::Split(Some(slot), -rank))
    }

    pub(super) fn create(world: &Comm, id: u64, group: Group) -> Self {
        let ranks = group.iter().map(u32::from).collect();
        Self { ranks, ..Self::new(world, id, 1, Kind::Create(group, id as u32)) }
    }

    /// Returns the plan with this number among the creations from a communicator. All members compute the same kind of
    /// plan.
    pub(super) fn child(parent: &Comm, id: u64, number: u64, depth: u32) -> Self {
        let key = number_of(&[id, number]);
        let rank = parent.rank().0;
        let kind = match (parent.remote_size(), key % 6) {
            (Some(_), 0..=2) => Kind::Dup,
            (Some(_), _) => Kind::Merge,
            (None, 0) => Kind::Dup,
            (None, 1) => Kind::Split((rank % 4 != 3).then_some(rank % 2), -i64::from(rank)),
            (None, 2) => {
                let first = parent.group().filter(|member| number_of(&[key, u64::from(member.0)]) >> 62 > 0);
                let is_member = parent.group().rank(rank).is_some_and(|mine| first.contains(mine));
                match is_member {
                    true => Kind::Create(first, number as u32),
                    // The other members create another communicator.
                    false => Kind::Create(parent.group().difference(&first), number as u32),
                }
            }
            _ if parent.size() > 1 => Kind::Halves,
            _ => Kind::Dup,
        };
        Self::new(parent, key, depth, kind)
    }

    fn new(parent: &Comm, key: u64, depth: u32, kind: Kind) -> Self {
        let mut ranks: Vec<u32> = parent.group().iter().map(u32::from).collect();
        ranks.extend(parent.remote_group().iter().flat_map(Group::iter).map(u32::from));
        let key = match &kind {
            Kind::Create(group, _) => {
                ranks = group.iter().map(u32::from).collect();
                number_of(&[key, u64::from(ranks[0])])
            }
            _ => key,
        };
        Self { parent: parent.clone(), key, ranks, depth, kind }
    }

    /// Returns the number of the new communicator. A creation can make several communicators, one for each group or
    /// colour, with different numbers.
    fn id(&self) -> u64 {
        match self.kind {
            Kind::Split(colour, _) => number_of(&[self.key, 1 + u64::from(colour.unwrap_or(u32::MAX))]),
            Kind::Halves => number_of(&[self.key, u64::from(self.parent.rank().0 % 2)]),
            _ => self.key,
        }
    }

    fn begin(&self, handle: &Comm) -> Result<Either, Error> {
        let rank = handle.rank().0;
        Ok(match &self.kind {
            Kind::Dup => Either::One(handle.idup()?),
            Kind::Split(colour, key) => Either::Some(handle.isplit(*colour, *key)?),
            Kind::Create(group, tag) => Either::One(handle.icreate_from_group(group, *tag)?),
            Kind::Halves => Either::Some(handle.isplit(Some(rank % 2), i64::from(rank))?),
            Kind::Connect { peer, remote_leader, tag } => {
                Either::One(handle.icreate_intercomm(Rank(0), peer, *remote_leader, *tag)?)
            }
            Kind::Merge => Either::One(handle.imerge(self.key.is_multiple_of(2))?),
        })
    }

    /// If this creation has made `half`, a half of the parent, returns the creation that connects it with the other
    /// half.
    fn connect(&self, half: &Comm) -> Option<Self> {
        let Kind::Halves = self.kind else { return None };
        let remote_leader = Rank(1 - self.parent.rank().0 % 2);
        let kind = Kind::Connect { peer: self.parent.clone(), remote_leader, tag: self.key as u32 };
        let plan = Self::new(half, number_of(&[self.key, 2]), self.depth, kind);
        Some(Self { ranks: self.ranks.clone(), ..plan })
    }
}

impl Creations {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn begin(&mut self, rng: &mut SplitMix64, plan: Plan, report: &mut Report) {
        let mut handled = Handled::default();
        let bound = if rng.below(16) == 0 { SOON } else { BOUND };
        let handle = handled.handle(&plan.parent).with_timeout(bound);
        match plan.begin(&handle) {
            Ok(creation) => self.0.push(Begun { plan, creation, since: Instant::now(), handled }),
            Err(error) => {
                handled.returned(&error, report);
                report.created(plan.key, &plan.ranks, end_of(&error));
            }
        }
    }

    /// Returns the communicators that were created.
    pub(super) fn take(&mut self, report: &mut Report) -> Vec<Made> {
        let mut made = Vec::new();
        for mut begun in std::mem::take(&mut self.0) {
            let end = match &mut begun.creation {
                Either::One(creation) => creation.test().map(|end| end.map(Some)),
                Either::Some(creation) => creation.test(),
            };
            let Begun { plan, since, handled, .. } = &mut begun;
            match end {
                None => {
                    if since.elapsed() > BOUND + SLACK {
                        report.troubles.push(format!("creation {:x} does not end", plan.key));
                        begun.give_up(report);
                        continue;
                    }
                    self.0.push(begun);
                }
                Some(Ok(comm)) => {
                    report.created(plan.key, &plan.ranks, CreationEnd::Made);
                    handled.check(report, "a creation");
                    let comm = comm.map(|comm| comm.with_timeout(BOUND));
                    let connect = comm.as_ref().and_then(|comm| plan.connect(comm));
                    made.extend(comm.map(|comm| Made { comm, id: plan.id(), depth: plan.depth, connect }));
                }
                Some(Err(error)) => {
                    handled.returned(&error, report);
                    handled.check(report, "a creation");
                    report.created(plan.key, &plan.ranks, end_of(&error));
                }
            }
        }
        made
    }

    /// Cancels a creation, or drops it.
    pub(super) fn give_up_one(&mut self, rng: &mut SplitMix64, report: &mut Report) {
        if self.0.is_empty() {
            return;
        }
        let at = rng.below(self.0.len() as u64) as usize;
        if rng.below(2) == 0 {
            self.0.swap_remove(at).give_up(report);
        } else {
            match &self.0[at].creation {
                Either::One(creation) => creation.cancel(),
                Either::Some(creation) => creation.cancel(),
            }
        }
    }

    pub(super) fn give_up_all(&mut self, report: &mut Report) {
        self.0.drain(..).for_each(|begun| begun.give_up(report));
    }
}

impl Begun {
    fn give_up(self, report: &mut Report) {
        report.created(self.plan.key, &self.plan.ranks, CreationEnd::GaveUp);
    }
}

fn end_of(error: &Error) -> CreationEnd {
    match error {
        Error::PeerFailed { world_rank, cause, .. } => CreationEnd::Failed {
            rank: world_rank.0,
            has_left: *cause == Cause::LeftComm,
            cause: cause.to_string(),
        },
        Error::Exhausted { .. } => CreationEnd::Exhausted,
        _ => CreationEnd::GaveUp,
    }
}
