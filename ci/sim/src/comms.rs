//! Communicators of simulated ranks: their creation, in all orders, and their end.

use std::collections::BTreeMap;

use samite_fabric::SplitMix64;
use samite_p2p::{
    Agreed, AgreementId, Choice, Error, Group, Leader, Pattern, Progress, Proposal, Time, WorldRank,
};

use crate::ledger::require;
use crate::rank::{NEVER, Rank};
use crate::run::{Run, pick};

/// The control context of the job.
const CONTROL: u32 = 1;

/// The largest number of communicators that a rank keeps.
const COMMS_MAX: usize = 5;

/// The largest number of creations that a rank has under way.
const CREATIONS_MAX: usize = 6;

/// Counts of creations. A creation counts once for each rank that takes part in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Created {
    pub(crate) comms: usize,
    /// The intercommunicators among them.
    pub(crate) inter: usize,
    /// Communicators with contexts whose numbers had been used before.
    pub(crate) reused: usize,
    /// Creations for which no number was free.
    pub(crate) exhausted: usize,
    /// Other creations that failed.
    pub(crate) failed: usize,
}

/// The communicators of a rank, and the communicators that it is creating.
#[derive(Default)]
pub(crate) struct Comms {
    all: Vec<Comm>,
    creations: Vec<Creation>,
    /// The indices of the plans in which this rank takes part or took part.
    joined: Vec<usize>,
    created: Created,
}

/// A creation under way at a rank.
struct Creation {
    id: AgreementId,
    deadline_ns: u64,
    /// The control context.
    control: u32,
}

/// A communicator of a rank.
struct Comm {
    /// Identifies the communicator in the run: a digest of the name of its contexts and of its members. The name of the
    /// contexts is not enough: separate groups may use a name at the same time, and a restarted rank may use a name
    /// again that its earlier incarnation used.
    name: u64,
    context: u32,
    /// The members, or this rank's group in an intercommunicator.
    members: Group,
    /// The other group of an intercommunicator.
    remote: Option<Group>,
    /// The number of numbered creations in it that this rank has begun.
    begun: usize,
}

/// The context of a message, and the possible partners of a rank in that context.
#[derive(Clone, Default)]
pub(crate) struct Place {
    pub(crate) context: u32,
    pub(crate) name: u64,
    /// `None` if all ranks are partners.
    partners: Option<Group>,
}

impl Place {
    /// Returns a context of the job.
    pub(crate) fn of_job(context: u32) -> Self {
        Self { context, ..Self::default() }
    }

    /// Returns a partner, given a rank of the job.
    pub(crate) fn partner(&self, rank: u32) -> u32 {
        let partner = self.partners.as_ref().and_then(|partners| partners.rank(rank % partners.len()));
        partner.map_or(rank, |partner| partner.0)
    }
}

/// Creations in which only some ranks of a communicator take part. These ranks begin a creation at different times, and
/// some of them may never begin it.
#[derive(Default)]
pub(crate) struct Plans {
    all: Vec<Plan>,
    /// The name and the members of each communicator that existed when the latest creation was planned.
    known: Vec<(u64, Group)>,
    /// For each communicator, the creations in which all its ranks take part, in their order.
    scripts: BTreeMap<u64, Vec<Step>>,
    /// The number of intercommunicators that were planned.
    meetings: u32,
    ended: Created,
}

/// A creation in which all ranks of a communicator take part. All of them begin these creations in the same order.
#[derive(Clone, Copy, Debug)]
enum Step {
    Duplicate,
    /// A split of an intercommunicator into intercommunicators.
    Split,
    /// The union of the two groups of an intercommunicator.
    Merge,
    /// An intercommunicator with another group. The leaders of this group and of the other one exchange messages in the
    /// job's control context.
    Meet {
        leader: WorldRank,
        other: WorldRank,
        tag: u32,
    },
}

#[derive(Clone)]
struct Plan {
    /// The name of the communicator in which the creation takes place; 0 for the world.
    parent: u64,
    ranks: Group,
}

impl Comms {
    /// Returns the name of an open context; 0 for the job's.
    pub(crate) fn name(&self, context: u32) -> u64 {
        self.all.iter().find(|comm| comm.context == context).map_or(0, |comm| comm.name)
    }

    /// Returns the contexts for traffic.
    pub(crate) fn contexts(&self) -> Vec<u32> {
        std::iter::once(0).chain(self.all.iter().map(|comm| comm.context)).collect()
    }

    pub(crate) fn place(&self, which: u64) -> Place {
        match which as usize % (1 + self.all.len()) {
            0 => Place::default(),
            at => {
                let Comm { name, context, members, remote, .. } = &self.all[at - 1];
                let partners = remote.as_ref().unwrap_or(members).clone();
                Place { context: *context, name: *name, partners: Some(partners) }
            }
        }
    }

    /// Forgets the creations under way, because the rank leaves.
    pub(crate) fn give_up(&mut self) {
        self.creations.clear();
    }

    pub(crate) fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.creations.iter().map(|creation| creation.deadline_ns)
    }
}

impl Rank {
    /// Takes the communicators that were created. Returns the number of creations that have ended.
    pub(crate) fn take_created(&mut self) -> Result<usize, String> {
        let mut ended = 0;
        for creation in std::mem::take(&mut self.comms.creations) {
            match self.engine.agreement(creation.id) {
                Some(Progress::Awaits { .. }) => self.comms.creations.push(creation),
                Some(Progress::Ended(Ok(agreed))) => {
                    ended += 1;
                    let Some(agreed) = agreed else { continue };
                    self.comms.created.comms += 1;
                    self.comms.created.reused += usize::from(agreed.name != u64::from(agreed.context));
                    let is_member = agreed.members.contains(WorldRank(self.process.rank));
                    require(is_member, || format!("rank {} is no member: {agreed:?}", self.process.rank))?;
                    let twin = self.comms.all.iter().find(|comm| comm.context == agreed.context);
                    require(twin.is_none(), || format!("{agreed:?} has the number of an open context"))?;
                    let name = digest_of(&agreed);
                    let Agreed { context, members, remote, .. } = agreed;
                    self.comms.created.inter += usize::from(remote.is_some());
                    self.comms.all.push(Comm { name, context, members, remote, begun: 0 });
                }
                Some(Progress::Decided(decision)) => {
                    return Err(format!("a creation has ended with {decision:?}"));
                }
                Some(Progress::Ended(Err(error))) => {
                    ended += 1;
                    match error {
                        Error::Exhausted { .. } => self.comms.created.exhausted += 1,
                        Error::PeerFailed { .. } | Error::TimedOut { .. } | Error::Cancelled { .. } => {
                            self.comms.created.failed += 1;
                        }
                        error => {
                            return Err(format!(
                                "rank {}: a creation cannot end with: {error:?}",
                                self.process.rank
                            ));
                        }
                    }
                }
                None => return Err("a creation has no result".into()),
            }
        }
        Ok(ended)
    }

    /// Discards the messages of creations in which this rank takes no part any more. Returns true if there were any.
    pub(crate) fn discard_answers(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        for control in self.comms.contexts().into_iter().map(|context| context + 1) {
            while let Some((_, claimed)) = claim(self, control) {
                self.engine.discard(Time::from_nanos(now_ns), claimed);
                any = true;
            }
        }
        any
    }

    fn begin_creation(&mut self, now_ns: u64, proposal: Proposal, deadline_ns: u64) {
        let (now, deadline) = (Time::from_nanos(now_ns), Time::from_nanos(deadline_ns));
        let control = proposal.control;
        let id = self.engine.begin_agreement(now, proposal, deadline);
        self.comms.creations.push(Creation { id, deadline_ns, control });
    }
}

impl Run {
    /// Performs a random action on the communicators of a rank.
    pub(crate) fn act_on_comms(&mut self) {
        let index = self.rng.below(u64::from(self.size)) as usize;
        let (action, which, now) = (self.rng.below(10), self.rng.next_u64() as usize, self.net.now_ns());
        let deadline = if self.rng.below(8) == 0 { now + self.rng.below(2_000_000) } else { NEVER };
        let colour = pick(&mut self.rng, &[None, Some(0), Some(0), Some(0), Some(1)]);
        let key = self.rng.below(4) as i64;
        if action == 0 {
            self.plan(which);
        }
        let plan = self.plan_for(index, which);
        let all = Group::range(WorldRank(0), self.size);
        let Some(rank) = self.ranks[index].as_mut().filter(|rank| rank.acts()) else { return };
        let has_room = rank.comms.creations.len() < CREATIONS_MAX;
        let comm = which.checked_rem(rank.comms.all.len());
        match (action, plan, comm) {
            // These creations need no plan: all ranks of the communicator take part in them, and the creation that a
            // rank begins as its n-th one is the same creation at all ranks.
            (1, ..) if has_room => {
                self.net.note(format!("rank {index} splits the world with colour {colour:?}"));
                let choice = Choice::Colour(colour, key);
                let proposal = Proposal { ranks: all, control: CONTROL, tag: None, choice };
                rank.begin_creation(now, proposal, deadline);
            }
            (2 | 3, _, Some(comm)) if has_room => {
                let awaited = rank.comms.all.iter().position(|comm| self.plans.is_awaited(comm));
                let comm = &mut rank.comms.all[awaited.unwrap_or(comm)];
                let step = self.plans.step(comm, &mut self.rng);
                comm.begun += 1;
                self.net.note(format!("rank {index} begins {step:?} in {}", comm.name));
                let proposal = comm.propose(step, WorldRank(index as u32), colour, key);
                rank.begin_creation(now, proposal, deadline);
            }
            (4..=6, Some((at, Plan { parent, ranks })), _) if has_room => {
                let control = rank.comms.all.iter().find(|comm| comm.name == parent);
                let control = control.map_or(CONTROL, |comm| comm.context + 1);
                self.net.note(format!("rank {index} takes part in creation {at} of {ranks:?} in {parent}"));
                rank.comms.joined.push(at);
                let (tag, choice) = (Some(at as u32), Choice::Group(ranks.clone()));
                rank.begin_creation(now, Proposal { ranks, control, tag, choice }, deadline);
            }
            (7, ..) if which.is_multiple_of(4) && !rank.comms.creations.is_empty() => {
                let Creation { id, .. } =
                    rank.comms.creations.swap_remove(which % rank.comms.creations.len());
                self.net.note(format!("rank {index} gives up a creation"));
                rank.engine.drop_agreement(Time::from_nanos(now), id);
            }
            (8 | 9, _, Some(comm)) if which.is_multiple_of(3) || rank.comms.all.len() > COMMS_MAX => {
                self.close_comm(index, comm);
            }
            _ => {}
        }
    }

    /// Plans a creation of some ranks, of the world or of a communicator.
    fn plan(&mut self, which: usize) {
        let world = (0, Group::range(WorldRank(0), self.size));
        self.plans.known.truncate(0);
        // Only communicators of one group can have creations of some ranks.
        let comms = self.ranks.iter().flatten().flat_map(|rank| &rank.comms.all);
        let comms = comms.filter(|comm| comm.remote.is_none());
        self.plans.known.extend(comms.map(|comm| (comm.name, comm.members.clone())));
        self.plans.known.push(world);
        let (parent, members) = self.plans.known[which % self.plans.known.len()].clone();
        let (count, first) = (1 + self.rng.below(u64::from(members.len().min(6))) as u32, self.any_member());
        let ranks = (0..count).filter_map(|at| members.rank((first + at) % members.len()));
        if let Ok(ranks) = Group::new(ranks) {
            self.plans.all.push(Plan { parent, ranks });
        }
    }

    fn any_member(&mut self) -> u32 {
        self.rng.below(u64::from(self.size)) as u32
    }

    /// Returns one of the eight latest plans in which the rank can take part and has not taken part.
    fn plan_for(&self, index: usize, which: usize) -> Option<(usize, Plan)> {
        let rank = self.ranks[index].as_ref()?;
        let plans = self.plans.all.iter().enumerate().rev().take(8);
        let can_join = |(at, plan): &(usize, &Plan)| {
            let has_parent = plan.parent == 0 || rank.comms.all.iter().any(|comm| comm.name == plan.parent);
            let is_member = plan.ranks.contains(WorldRank(index as u32));
            has_parent && is_member && !rank.comms.joined.contains(at)
        };
        let open: Vec<_> = plans.filter(can_join).collect();
        open.get(which % open.len().max(1)).map(|(at, plan)| (*at, (*plan).clone()))
    }

    /// Closes a communicator of a rank. Gives up the rank's claims in the communicator first, as a program does that
    /// drops them before the communicator.
    fn close_comm(&mut self, index: usize, comm: usize) {
        let now = self.net.now_ns();
        let Some(rank) = &mut self.ranks[index] else { return };
        let control = rank.comms.all[comm].context + 1;
        if rank.comms.creations.iter().any(|creation| creation.control == control) {
            // A creation under way in the communicator keeps the communicator open.
            return;
        }
        let Comm { name, context, .. } = rank.comms.all.swap_remove(comm);
        self.net.note(format!("rank {index} closes {name}, number {context}"));
        rank.give_up_claims(&mut self.ledger, now, name);
        rank.engine.close_contexts(Time::from_nanos(now), context);
    }

    /// Gives up the creations under way.
    pub(crate) fn end_creations(&mut self) {
        let now = Time::from_nanos(self.net.now_ns());
        for rank in self.ranks.iter_mut().flatten() {
            for Creation { id, .. } in std::mem::take(&mut rank.comms.creations) {
                rank.engine.drop_agreement(now, id);
            }
        }
    }

    /// Notes the communicators that are open.
    pub(crate) fn note_open(&mut self) {
        for rank in self.ranks.iter().flatten() {
            let names = rank.comms.all.iter().map(|comm| (rank.process.rank, comm.name));
            self.losses.open.extend(names);
        }
    }

    /// Returns the counts of all ranks.
    pub(crate) fn created(&self) -> Created {
        let mut total = self.plans.ended;
        self.ranks.iter().flatten().for_each(|rank| total.add(&rank.comms.created));
        total
    }

    /// Keeps the counts of a rank that has ended.
    pub(crate) fn keep_counts(&mut self, ended: &Rank) {
        self.plans.ended.add(&ended.comms.created);
    }
}

impl Plans {
    /// Returns true if other ranks have begun, or planned, the next numbered creation of a rank in a communicator.
    fn is_awaited(&self, comm: &Comm) -> bool {
        self.scripts.get(&comm.name).is_some_and(|script| script.len() > comm.begun)
    }

    /// Returns the next numbered creation of a rank in a communicator. The first rank that comes to it chooses it.
    fn step(&mut self, comm: &Comm, rng: &mut SplitMix64) -> Step {
        let at = comm.begun;
        if let Some(&step) = self.scripts.get(&comm.name).and_then(|script| script.get(at)) {
            return step;
        }
        let step = match (&comm.remote, rng.below(3)) {
            (_, 0) => Step::Duplicate,
            (Some(_), 1) => Step::Split,
            (Some(_), _) => Step::Merge,
            (None, _) => self.meet(comm, rng.next_u64()).unwrap_or(Step::Duplicate),
        };
        let script = self.scripts.entry(comm.name).or_default();
        assert_eq!(script.len(), at, "each rank takes part in each creation");
        script.push(step);
        step
    }

    /// Plans an intercommunicator between a communicator and another one, whose ranks take part when they come to it.
    fn meet(&mut self, comm: &Comm, which: u64) -> Option<Step> {
        let members = &comm.members;
        let is_apart = |(name, others): &&(u64, Group)| {
            *name != 0 && others.iter().all(|other| !members.contains(other))
        };
        let apart: Vec<_> = self.known.iter().filter(is_apart).collect();
        let (name, others) = *apart.get(which as usize % apart.len().max(1))?;
        let (leader, other) = (members.rank(0)?, others.rank(0)?);
        let tag = self.meetings;
        self.meetings += 1;
        let theirs = Step::Meet { leader: other, other: leader, tag };
        self.scripts.entry(*name).or_default().push(theirs);
        Some(Step::Meet { leader, other, tag })
    }
}

impl Comm {
    /// Returns the proposal of a rank for a creation.
    fn propose(&self, step: Step, me: WorldRank, colour: Option<u64>, key: i64) -> Proposal {
        let own = self.members.clone();
        // Both groups are listed in the same order at all ranks.
        let ranks = match &self.remote {
            None => own.clone(),
            Some(remote) if own.bounds() < remote.bounds() => own.union(remote),
            Some(remote) => remote.union(&own),
        };
        let choice = match (step, self.remote.clone()) {
            (Step::Meet { leader, other, tag }, _) => Choice::Remote {
                leader: own.index(leader).expect("the leader is a member"),
                other: (leader == me).then_some(Leader { rank: other, control: CONTROL, tag }),
            },
            (_, None) => Choice::Group(own),
            (Step::Duplicate, Some(remote)) => Choice::Groups { own, remote },
            (Step::Split, Some(remote)) => Choice::ColourBetween { colour, key, own, remote },
            (Step::Merge, Some(_)) => Choice::Colour(Some(0), i64::from(own.len() % 2)),
        };
        Proposal { ranks, control: self.context + 1, tag: None, choice }
    }
}

/// Returns a digest of the contexts and the members of a communicator. It is the same in both groups of an
/// intercommunicator.
fn digest_of(agreed: &Agreed) -> u64 {
    let ranks = |group: &Group| group.iter().map(|rank| u64::from(rank.0)).collect::<Vec<_>>();
    let mut groups: Vec<_> =
        [Some(&agreed.members), agreed.remote.as_ref()].into_iter().flatten().map(ranks).collect();
    groups.sort_unstable();
    let digest = |sum, word| SplitMix64::new(sum ^ word).next_u64();
    groups.join(&u64::MAX).into_iter().fold(digest(1, agreed.name), digest)
}

/// Claims a message in a control context.
fn claim(rank: &mut Rank, control: u32) -> Option<(samite_p2p::Status, samite_p2p::Claimed)> {
    loop {
        match rank.engine.claim(&Pattern::any(control)) {
            Ok(found) => return found,
            Err(Error::FailurePending { .. }) => {}
            Err(_) => return None,
        }
    }
}

impl Created {
    pub(crate) fn add(&mut self, other: &Self) {
        self.comms += other.comms;
        self.inter += other.inter;
        self.reused += other.reused;
        self.exhausted += other.exhausted;
        self.failed += other.failed;
    }
}
