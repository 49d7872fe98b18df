//! Derived communicators, made and dropped while ranks die and restart, with messages in several of them at the same
//! time.
//!
//! A communicator has a number that all its members compute in the same way, from the number of its parent and the
//! order of the creations there. Its messages are computed from that number, so a message that gets into another
//! communicator has the wrong content.
//!
//! Creations begin in three ways. A rank invites other ranks to create the communicator of a group with it. All ranks
//! create a communicator from the world every [`SLOT_NS`] nanoseconds. And the members of a communicator create further
//! communicators from it ([`creation`]).

mod channel;
mod creation;
mod handled;
mod rounds;
mod tasks;

use std::time::Duration;

use samite::{Comm, Error, Group, Rank, Source, Tag};
use samite_fabric::SplitMix64;

use crate::content::{KIND_BITS, NEVER_SENT};
use crate::report::{Created, CreationEnd, Report, now_ns};
use crate::watchdog::Watchdog;

use channel::Channel;
use creation::{Creations, Plan};

/// The derived communicators of one rank.
pub(crate) struct Derived<'a> {
    world: &'a Comm,
    /// The same communicator with a short time-out.
    soon: Comm,
    watchdog: &'a Watchdog,
    rng: SplitMix64,
    /// True if killed ranks are restarted.
    returns: bool,
    /// The time at which the job began, which all ranks know.
    began_ns: u64,
    /// The number of creations by all ranks that this rank has begun or missed.
    slots: u64,
    channels: Vec<Channel>,
    /// Communicators whose operations were cancelled, and must end.
    closing: Vec<Channel>,
    creations: Creations,
    report: Report,
}

/// The longest time that an operation may take in a derived communicator.
pub(crate) const BOUND: Duration = Duration::from_millis(400);
/// The time by which an operation may exceed its bound: this rank tests its operations between other operations that
/// wait, and may be stopped.
pub(crate) const SLACK: Duration = Duration::from_secs(8);
pub(crate) const SOON: Duration = Duration::from_millis(2);
/// The tag of an invitation, in the world. It holds the number of the communicator and the members.
const INVITATION: u64 = 4;
/// Time between two creations by all ranks.
const SLOT_NS: u64 = 100_000_000;
/// A rank with more communicators than this closes some of them.
const CHANNELS_MAX: usize = 12;
/// A rank with this many communicators or fewer invites other ranks to create one.
const CHANNELS_MIN: usize = 4;
/// The largest number of creations from the world to a communicator, each from the communicator before it.
const DEPTH_MAX: u32 = 3;

impl<'a> Derived<'a> {
    pub(crate) fn new(
        world: &'a Comm,
        watchdog: &'a Watchdog,
        seed: u64,
        began_ns: u64,
        returns: bool,
    ) -> Result<Self, Error> {
        let incarnation = u64::from(world.incarnation(world.rank())?.unwrap_or(0));
        let slots = if returns { now_ns().saturating_sub(began_ns) / SLOT_NS } else { 0 };
        Ok(Self {
            world,
            soon: world.with_timeout(SOON),
            watchdog,
            rng: SplitMix64::new(number_of(&[seed, u64::from(world.rank().0), incarnation])),
            returns,
            began_ns,
            slots,
            channels: Vec::new(),
            closing: Vec::new(),
            creations: Creations::default(),
            report: Report { rank: world.rank().0, ..Report::default() },
        })
    }

    /// Does one random action and checks the operations that have ended.
    pub(crate) fn step(&mut self) {
        self.watchdog.now(format_args!("creating communicators"));
        self.begin_with_all();
        if self.channels.len() <= CHANNELS_MIN
            && self.creations.len() <= CHANNELS_MIN
            && self.rng.below(16) == 0
        {
            self.invite();
        }
        self.accept_invitations();
        if self.rng.below(64) == 0 {
            self.creations.give_up_one(&mut self.rng, &mut self.report);
        }
        self.take_created();
        self.watchdog.now(format_args!("closing communicators"));
        self.close_those_at_rest();
        if self.channels.is_empty() {
            return;
        }
        let at = self.rng.below(self.channels.len() as u64) as usize;
        let channel = &mut self.channels[at];
        channel.step(&mut self.rng, self.watchdog, &mut self.report);
        if let Some(plan) = channel.next_child(&mut self.rng, DEPTH_MAX) {
            self.creations.begin(&mut self.rng, plan, &mut self.report);
        } else if self.channels[at].is_old() && self.rng.below(20) == 0 || self.channels.len() > CHANNELS_MAX
        {
            let mut channel = self.channels.swap_remove(at);
            match self.rng.below(2) {
                0 => channel.close(&mut self.report),
                _ => {
                    channel.cancel_all();
                    self.closing.push(channel);
                }
            }
        }
    }

    /// Polls the communicators in `closing`, and closes each one when all its operations have ended.
    fn close_those_at_rest(&mut self) {
        for channel in &mut self.closing {
            channel.look(&mut self.report);
        }
        for channel in self.closing.extract_if(.., |channel| channel.is_at_rest()) {
            channel.close(&mut self.report);
        }
    }

    /// Gives up all creations and cancels all operations.
    pub(crate) fn cancel_all(&mut self) {
        self.creations.give_up_all(&mut self.report);
        self.channels.iter_mut().for_each(Channel::cancel_all);
        self.closing.append(&mut self.channels);
    }

    /// Drops the communicators whose operations have ended. Returns true if none is left.
    pub(crate) fn have_ended(&mut self) -> bool {
        self.watchdog.now(format_args!("closing the last communicators"));
        self.closing.iter().for_each(|channel| channel.sleep(SOON));
        self.close_those_at_rest();
        self.closing.is_empty()
    }

    pub(crate) fn report(self) -> Report {
        self.report
    }

    /// Discards the invitations that still arrive. A rank that leaves waits until its messages have been received.
    pub(crate) fn discard_invitations(world: &Comm) {
        while let Ok(Some(_)) = world.try_claim(Source::ANY, INVITATION) {}
    }

    /// Begins the next creation by all ranks, if it is due. Ranks that join late take part in all earlier creations
    /// too, so that all ranks begin the same creations in the same order. A restarted rank begins with the creation of
    /// the present slot.
    fn begin_with_all(&mut self) {
        if now_ns().saturating_sub(self.began_ns) / SLOT_NS < self.slots {
            return;
        }
        let slot = self.slots;
        self.slots += 1;
        let id = number_of(&[slot]);
        // The creation that a restarted rank begins may be the creation of another slot at the other ranks, because the
        // restarted rank does not know how many creations were begun before. So all creations are splits, and the
        // colour is the slot: ranks of different slots do not get the same communicator.
        let plan = match self.returns || id.is_multiple_of(3) {
            true => Plan::split_by_slot(self.world, id, slot as u32),
            false => Plan::dup(self.world, id),
        };
        self.creations.begin(&mut self.rng, plan, &mut self.report);
    }

    /// Invites some ranks to create a communicator with this rank. Usually only ranks that live are invited.
    fn invite(&mut self) {
        let with_dead = self.rng.below(8) == 0;
        let mut ranks = vec![];
        for rank in (0..self.world.size()).map(Rank) {
            let is_alive = || self.world.try_probe(rank, NEVER_SENT).is_ok();
            if rank == self.world.rank() || self.rng.below(2) == 0 && (with_dead || is_alive()) {
                ranks.push(rank);
            }
        }
        let at = self.rng.below(ranks.len() as u64) as usize;
        ranks.rotate_left(at);
        let id = self.rng.next_u64();
        let invitation: Vec<u64> =
            std::iter::once(id).chain(ranks.iter().map(|rank| u64::from(rank.0))).collect();
        for &rank in ranks.iter().filter(|&&rank| rank != self.world.rank()) {
            self.watchdog.now(format_args!("inviting {rank}"));
            // If a rank does not get the invitation, the creation ends with an error.
            let _ = self.soon.send(&invitation, rank, INVITATION);
        }
        self.join(id, ranks);
    }

    fn accept_invitations(&mut self) {
        while let Ok(Some(message)) =
            self.world.try_claim(Source::ANY, Tag::masked(INVITATION, !(!0 << KIND_BITS)))
        {
            match message.recv::<u64>().map(|done| done.buffer) {
                Ok(words) if words.len() > 1 => {
                    let ranks = words[1..].iter().map(|&rank| Rank(rank as u32)).collect();
                    self.join(words[0], ranks);
                }
                Ok(words) => self.report.troubles.push(format!("an invitation is {words:?}")),
                // The rank that invited has died.
                Err(_) => {}
            }
        }
    }

    fn join(&mut self, id: u64, ranks: Vec<Rank>) {
        match Group::new(ranks) {
            Ok(group) => {
                let plan = Plan::create(self.world, id, group);
                self.creations.begin(&mut self.rng, plan, &mut self.report);
            }
            Err(error) => self.report.troubles.push(format!("an invitation to {id:x}: {error}")),
        }
    }

    fn take_created(&mut self) {
        for made in self.creations.take(&mut self.report) {
            self.report.comms += 1;
            if let Some(connect) = made.connect {
                self.creations.begin(&mut self.rng, connect, &mut self.report);
            }
            self.channels.push(Channel::new(made.comm, made.id, made.depth, &mut self.report));
        }
    }
}

/// Returns a hash of `words`. Ranks that must make the same choice hash the same words. The hash is for example the
/// number of a communicator, or the seed of a rank's random choices.
fn number_of(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum: u64, word| SplitMix64::new(sum.rotate_left(7) ^ word).next_u64())
}

impl Report {
    fn created(&mut self, key: u64, ranks: &[u32], end: CreationEnd) {
        self.creations.push(Created { key, ranks: ranks.to_vec(), end });
    }
}
