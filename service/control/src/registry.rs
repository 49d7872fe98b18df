//! Who is where, and who has ended: the rendezvous of a host's ranks, without any input or output.
//!
//! ```text
//!  rank ── Request ──▶ this ── Question, once ──▶ front ── Question ──▶ the agent of that rank
//!       ◀─ Address ───      ◀─── Address ────────       ◀─── Answer ───
//! ```
//! A rank costs one publication, and for each partner one question and one answer. The end of a rank is told
//! to all, but those that end without failing are told of together.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{
    Ending, FromAgent, FromRank, GivenUp, Obituary, Secret, Stop, ToRank, WHY_BYTES_MAX, Whereabouts,
};

/// Addresses and endings of a job's ranks, as one agent knows them. Each step leaves in `outbox` what is to
/// be sent.
#[derive(Debug)]
pub struct Registry {
    /// The ranks of the agent.
    here: Range<u32>,
    /// All ranks of the job.
    members: Vec<Member>,
    secret: Secret,
    /// Endings that were not told yet, and whether there is haste.
    untold: Vec<Obituary>,
    urgent: bool,
    /// Messages to be sent.
    pub outbox: Vec<Post>,
}

/// What is to be sent, and to whom.
#[derive(Debug, PartialEq)]
pub enum Post {
    /// A message to a rank of this agent.
    Rank(u32, ToRank),
    /// A message to the front.
    Front(FromAgent),
}

#[derive(Debug)]
struct Member {
    incarnation: u32,
    address: Option<Vec<u8>>,
    /// Who has asked for the address before it was known.
    waiting: Vec<Asker>,
    ended: Option<Ending>,
    /// Whether it has said that it leaves, so that its process cannot fail any more for the others.
    has_left: bool,
    /// Whether it is started again, of one that has failed.
    returns: bool,
    /// The ranks that this incarnation has given up, and which incarnation of each last.
    given_up: BTreeMap<u32, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// A rank of this agent.
    Rank(u32),
    /// The agent of this host.
    Host(u32),
}

impl Registry {
    /// The registry of a job of `size` ranks, of which `here` are this agent's.
    pub fn new(size: u32, here: Range<u32>, secret: Secret) -> Registry {
        let member = |rank| Member {
            incarnation: secret.first_incarnation(rank),
            address: None,
            waiting: Vec::new(),
            ended: None,
            has_left: false,
            returns: false,
            given_up: BTreeMap::new(),
        };
        let members = (0..size).map(member).collect();
        Registry { here, members, secret, untold: Vec::new(), urgent: false, outbox: Vec::new() }
    }

    /// Acts on what `rank` said.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn handle(&mut self, rank: u32, message: FromRank) -> Result<(), String> {
        match message {
            FromRank::Publish { address } => self.publish(rank, address),
            FromRank::Request { rank: wanted } => self.request(Asker::Rank(rank), wanted),
            FromRank::GaveUp { rank: given_up, incarnation, why } => {
                self.give_up_peer(rank, given_up, incarnation, why)
            }
            FromRank::Figures(figures) => {
                self.outbox.push(Post::Front(FromAgent::Figures { rank, figures }));
                Ok(())
            }
            FromRank::Peers(peers) => {
                self.outbox.push(Post::Front(FromAgent::Peers { rank, peers }));
                Ok(())
            }
            // Whoever sees the process takes care of the latter, and does not hand it on.
            FromRank::Leave | FromRank::Closed => {
                self.end(rank, Ending::Left, false);
                self.members[rank as usize].has_left = true;
                Ok(())
            }
            FromRank::Panicked => {
                self.end(rank, Ending::Panicked, false);
                Ok(())
            }
        }
    }

    /// The agent of `host` asks for a rank of this one.
    pub fn question(&mut self, host: u32, rank: u32) {
        // The front asks for nothing that is not there.
        let _ = self.request(Asker::Host(host), rank);
    }

    /// Where a rank of another agent is.
    pub fn learn(&mut self, whereabouts: Whereabouts) {
        let Whereabouts { rank, incarnation, address } = whereabouts;
        let Some(member) = self.members.get_mut(rank as usize) else { return };
        if member.ended.is_none() && member.incarnation == incarnation {
            member.address = Some(address);
            self.answer(rank);
        }
    }

    /// A rank of another agent is back, in another life.
    pub fn welcome(&mut self, whereabouts: Whereabouts) {
        let rank = whereabouts.rank;
        if self.members.len() > rank as usize {
            self.renew(rank, whereabouts.incarnation);
            self.members[rank as usize].address = Some(whereabouts.address.clone());
            self.announce(&whereabouts);
        }
    }

    /// A rank of this agent was started again: the others hear of it when it says where it is. It is told who
    /// has ended, since it was not there to hear of it.
    pub fn restart(&mut self, rank: u32) {
        self.renew(rank, self.members[rank as usize].incarnation.wrapping_add(1));
        let ended = (0..).zip(&self.members).filter_map(|(rank, member)| {
            let Member { incarnation, returns, .. } = *member;
            Some(Obituary { rank, incarnation, ending: member.ended.clone()?, returns })
        });
        let ended: Vec<_> = ended.collect();
        if !ended.is_empty() {
            self.outbox.push(Post::Rank(rank, ToRank::Ended(ended)));
        }
    }

    /// The incarnation of a rank of this agent that runs now, or ran last.
    pub fn incarnation(&self, rank: u32) -> u32 {
        self.members[rank as usize].incarnation
    }

    /// A rank of this agent has ended, and is started again or not. Only the first of several endings of a life counts, but
    /// a failure counts after a leaving that the rank did not announce.
    pub fn end(&mut self, rank: u32, ending: Ending, returns: bool) {
        let member = &self.members[rank as usize];
        if !member.has_left {
            self.bury(Obituary { rank, incarnation: member.incarnation, ending, returns });
        }
    }

    /// A rank of this agent is not started again after all.
    pub fn give_up(&mut self, rank: u32) {
        let member = &self.members[rank as usize];
        if let Some(ending) = member.ended.clone() {
            self.bury(Obituary { rank, incarnation: member.incarnation, ending, returns: false });
        }
    }

    /// Whether a rank of this agent has said that it leaves.
    pub fn has_left(&self, rank: u32) -> bool {
        self.members[rank as usize].has_left
    }

    /// Ranks of other agents have ended.
    pub fn hear(&mut self, obituaries: Vec<Obituary>) {
        for obituary in obituaries {
            if self.members.len() > obituary.rank as usize {
                self.bury(obituary);
            }
        }
    }

    /// Tells a rank of this agent that another rank has given it up. Ignored if that incarnation does not run any more.
    pub fn tell_given_up(&mut self, given_up: GivenUp) {
        let GivenUp { by, rank, incarnation, .. } = given_up;
        let is_member = (by as usize) < self.members.len() && by != rank;
        if is_member
            && self.here.contains(&rank)
            && self.incarnation(rank) == incarnation
            && !self.has_ended(rank)
        {
            self.outbox.push(Post::Rank(rank, ToRank::GaveUp(given_up)));
        }
    }

    /// A rank of this agent was stopped, or goes on.
    pub fn stop(&mut self, rank: u32, is_stopped: bool) {
        let stop = Stop { rank, incarnation: self.incarnation(rank), is_stopped };
        self.spread_stop(stop);
        self.outbox.push(Post::Front(FromAgent::Stopped(stop)));
    }

    /// Tells the ranks of this agent that a rank was stopped, or goes on.
    pub fn spread_stop(&mut self, stop: Stop) {
        let others = self.listening().filter(|&to| to != stop.rank);
        let posts: Vec<_> = others.map(|to| Post::Rank(to, ToRank::Stopped(stop))).collect();
        self.outbox.extend(posts);
    }

    /// Returns true if the rank has ended.
    pub fn has_ended(&self, rank: u32) -> bool {
        self.members[rank as usize].ended.is_some()
    }

    /// Returns true if the rank has failed.
    pub fn has_failed(&self, rank: u32) -> bool {
        self.members[rank as usize].ended.as_ref().is_some_and(|ending| *ending != Ending::Left)
    }

    /// Returns true if a rank of this agent has dropped its world in a panic.
    pub fn has_panicked(&self, rank: u32) -> bool {
        self.members[rank as usize].ended == Some(Ending::Panicked)
    }

    /// Whether endings are to be told, and whether that cannot wait.
    pub fn untold(&self) -> Option<Urgent> {
        (!self.untold.is_empty()).then_some(Urgent(self.urgent))
    }

    /// Tells of all endings that were not told yet: to the ranks of this agent, and the front of those here.
    /// Returns how many are told.
    pub fn tell(&mut self) -> u32 {
        let untold = std::mem::take(&mut self.untold);
        if untold.is_empty() {
            return 0;
        }
        self.urgent = false;
        let before = self.outbox.len();
        let posts: Vec<_> =
            self.listening().map(|to| Post::Rank(to, ToRank::Ended(untold.clone()))).collect();
        self.outbox.extend(posts);
        let ours: Vec<_> = untold.into_iter().filter(|end| self.here.contains(&end.rank)).collect();
        if !ours.is_empty() {
            self.outbox.push(Post::Front(FromAgent::Ended(ours)));
        }
        (self.outbox.len() - before) as u32
    }

    /// The ranks of this agent that have not ended.
    fn listening(&self) -> impl Iterator<Item = u32> {
        self.here.clone().filter(|&rank| !self.has_ended(rank))
    }

    fn bury(&mut self, obituary: Obituary) {
        let member = &mut self.members[obituary.rank as usize];
        let is_news = match &member.ended {
            None => true,
            Some(Ending::Left) => obituary.ending != Ending::Left,
            Some(known) => member.returns && !obituary.returns && *known == obituary.ending,
        };
        if !is_news || member.incarnation != obituary.incarnation {
            return;
        }
        member.ended = Some(obituary.ending.clone());
        member.returns = obituary.returns;
        (member.address, member.waiting) = (None, Vec::new());
        self.urgent |= obituary.ending != Ending::Left;
        self.untold.push(obituary);
    }

    fn renew(&mut self, rank: u32, incarnation: u32) {
        let waiting = std::mem::take(&mut self.members[rank as usize].waiting);
        self.members[rank as usize] = Member {
            incarnation,
            address: None,
            waiting,
            ended: None,
            has_left: false,
            returns: false,
            given_up: BTreeMap::new(),
        };
    }

    /// Tells the ranks of this agent where a rank is that was started again.
    fn announce(&mut self, whereabouts: &Whereabouts) {
        // That its former life has ended comes first.
        self.tell();
        for to in self.here.clone() {
            if !self.has_ended(to) {
                self.outbox.push(Post::Rank(to, ToRank::Address(whereabouts.clone())));
            }
        }
    }

    fn publish(&mut self, rank: u32, address: Vec<u8>) -> Result<(), String> {
        let member = &mut self.members[rank as usize];
        if member.address.is_some() {
            return Err("it published its address twice".to_owned());
        }
        let whereabouts = Whereabouts { rank, incarnation: member.incarnation, address: address.clone() };
        member.address = Some(address);
        if member.incarnation != self.secret.first_incarnation(rank) {
            self.announce(&whereabouts);
            self.outbox.push(Post::Front(FromAgent::Returned(whereabouts)));
        }
        self.answer(rank);
        Ok(())
    }

    /// A rank of this agent has given up another one. An honest rank gives up each incarnation once, and knows none
    /// that was not started. More is refused or ignored, so a hostile rank cannot fill the connections of others.
    fn give_up_peer(&mut self, by: u32, rank: u32, incarnation: u32, why: String) -> Result<(), String> {
        let size = self.members.len();
        let Some(member) = self.members.get(rank as usize).filter(|_| rank != by) else {
            return Err(format!("rank {by} of a job of {size} gave up rank {rank}"));
        };
        if why.len() > WHY_BYTES_MAX {
            return Err(format!("it gave up rank {rank} for a reason of {} bytes", why.len()));
        }
        // A rank of another host may have met an incarnation that this agent has not heard of yet.
        if incarnation.wrapping_sub(member.incarnation) > INCARNATIONS_AHEAD {
            return Ok(());
        }
        let giver = &mut self.members[by as usize];
        let by_incarnation = giver.incarnation;
        let is_news = giver.given_up.get(&rank).is_none_or(|&last| incarnation.wrapping_sub(last) as i32 > 0);
        if !is_news {
            return Err(format!("it gave up the same incarnation of rank {rank} twice"));
        }
        giver.given_up.insert(rank, incarnation);
        let given_up = GivenUp { by, by_incarnation, rank, incarnation, why };
        match self.here.contains(&rank) {
            true => self.tell_given_up(given_up),
            false => self.outbox.push(Post::Front(FromAgent::GaveUp(given_up))),
        }
        Ok(())
    }

    fn request(&mut self, asker: Asker, wanted: u32) -> Result<(), String> {
        let size = self.members.len();
        let Some(member) = self.members.get_mut(wanted as usize) else {
            return Err(format!("it asked for rank {wanted} of a job of {size}"));
        };
        // Whoever asks for a rank that has ended hears of that.
        if member.ended.is_some() || member.waiting.contains(&asker) {
            return Ok(());
        }
        let is_first = member.waiting.is_empty();
        member.waiting.push(asker);
        if member.address.is_some() {
            self.answer(wanted);
        } else if is_first && !self.here.contains(&wanted) {
            self.outbox.push(Post::Front(FromAgent::Question { rank: wanted }));
        }
        Ok(())
    }

    /// Tells those who wait for it where `rank` is.
    fn answer(&mut self, rank: u32) {
        let member = &mut self.members[rank as usize];
        let Some(address) = &member.address else { return };
        let whereabouts = Whereabouts { rank, incarnation: member.incarnation, address: address.clone() };
        for asker in member.waiting.drain(..) {
            let whereabouts = whereabouts.clone();
            self.outbox.push(match asker {
                Asker::Rank(to) => Post::Rank(to, ToRank::Address(whereabouts)),
                Asker::Host(host) => Post::Front(FromAgent::Answer { host, whereabouts }),
            });
        }
    }
}

/// How many incarnations a rank may have had of which its agent has told nothing yet.
const INCARNATIONS_AHEAD: u32 = 8;

/// Whether something cannot wait.
pub struct Urgent(pub bool);

#[cfg(test)]
mod tests;
