//! Addresses and ends of the ranks: the state machine of an agent or of a rendezvous, without input or output.
//!
//! ```text
//!  rank ── Request ──▶ registry ── Question, once ──▶ coordinator ── Question ──▶ the agent of that rank
//!       ◀─ Address ───          ◀─── Address ────────             ◀─── Answer ───
//! ```
//! Each rank publishes its address once. It sends one request for each rank with which it communicates, and gets one
//! answer. The end of a rank is reported to all ranks; ends without a failure are collected and reported together.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{
    Ending, FromAgent, FromRank, GivenUp, RankExit, Secret, Stop, ToRank, WHY_BYTES_MAX, Whereabouts,
};

/// Addresses and ends of a job's ranks, as one agent knows them. At a rendezvous all ranks are "of this agent". A
/// method appends the messages that result from it to `outbox`.
#[derive(Debug)]
pub struct Registry {
    /// The ranks of the agent.
    here: Range<u32>,
    /// All ranks of the job.
    members: Vec<Member>,
    secret: Secret,
    /// Ends that were not reported yet.
    unreported: Vec<RankExit>,
    /// True if one of the unreported ends must be reported without delay.
    urgent: bool,
    /// The messages that the owner of this value must send.
    pub outbox: Vec<Post>,
}

/// A message with its receiver.
#[derive(Debug, PartialEq)]
pub enum Post {
    /// A message to a rank of this agent.
    Rank(u32, ToRank),
    /// A message to the coordinator.
    Coordinator(FromAgent),
}

#[derive(Debug)]
struct Member {
    incarnation: u32,
    address: Option<Vec<u8>>,
    /// Ranks and hosts that have asked for the address before it was known.
    waiting: Vec<Asker>,
    ended: Option<Ending>,
    /// True if the rank has announced that it leaves. Then a later failure of its process is not reported.
    has_left: bool,
    /// True if the failed rank is restarted.
    returns: bool,
    /// For each other rank, the last of its incarnations that this incarnation has given up.
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
    /// Returns the registry of a job of `size` ranks, of which `here` are this agent's.
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
        Registry { here, members, secret, unreported: Vec::new(), urgent: false, outbox: Vec::new() }
    }

    /// Handles a message of `rank`.
    ///
    /// # Errors
    /// If the message breaks the control protocol. The error says how, as a clause in which "it" is the rank.
    pub fn handle(&mut self, rank: u32, message: FromRank) -> Result<(), String> {
        match message {
            FromRank::Publish { address } => self.publish(rank, address),
            FromRank::Request { rank: wanted } => self.request(Asker::Rank(rank), wanted),
            FromRank::GaveUp { rank: given_up, incarnation, why } => {
                self.give_up_peer(rank, given_up, incarnation, why)
            }
            FromRank::Figures(figures) => {
                self.outbox.push(Post::Coordinator(FromAgent::Figures { rank, figures }));
                Ok(())
            }
            FromRank::Peers(peers) => {
                self.outbox.push(Post::Coordinator(FromAgent::Peers { rank, peers }));
                Ok(())
            }
            // The agent handles `Closed` itself, because it sees the process. So here, at a rendezvous, `Closed` means
            // that the rank has left.
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

    /// Handles the question of the agent of `host` for the address of `rank`, a rank of this agent. The answer goes to
    /// the outbox when the address is known.
    pub fn handle_question(&mut self, host: u32, rank: u32) {
        // The request cannot fail, because the coordinator asks only for existing ranks.
        let _ = self.request(Asker::Host(host), rank);
    }

    /// Stores the address of a rank of another agent.
    pub fn store_remote_address(&mut self, whereabouts: Whereabouts) {
        let Whereabouts { rank, incarnation, address } = whereabouts;
        let Some(member) = self.members.get_mut(rank as usize) else { return };
        if member.ended.is_none() && member.incarnation == incarnation {
            member.address = Some(address);
            self.send_address(rank);
        }
    }

    /// Notes that a rank of another agent has restarted, with its new address.
    pub fn note_remote_restart(&mut self, whereabouts: Whereabouts) {
        let rank = whereabouts.rank;
        if self.members.len() > rank as usize {
            self.renew(rank, whereabouts.incarnation);
            self.members[rank as usize].address = Some(whereabouts.address.clone());
            self.announce(&whereabouts);
        }
    }

    /// Notes that a rank of this agent was restarted. The other ranks are informed when it publishes its address. The
    /// rank gets a report of all ranks that have ended so far, since its new process has not received the earlier
    /// reports.
    pub fn restart(&mut self, rank: u32) {
        self.renew(rank, self.members[rank as usize].incarnation.wrapping_add(1));
        let ended = (0..).zip(&self.members).filter_map(|(rank, member)| {
            let Member { incarnation, returns, .. } = *member;
            Some(RankExit { rank, incarnation, ending: member.ended.clone()?, returns })
        });
        let ended: Vec<_> = ended.collect();
        if !ended.is_empty() {
            self.outbox.push(Post::Rank(rank, ToRank::Ended(ended)));
        }
    }

    /// Returns the running incarnation of a rank of this agent, or the last incarnation if none runs.
    pub fn incarnation(&self, rank: u32) -> u32 {
        self.members[rank as usize].incarnation
    }

    /// Notes that a rank of this agent has ended. `returns` is true if it is restarted. Only the first end of an
    /// incarnation counts, with two exceptions: a failure also counts if the rank was reported as left without having
    /// announced that it leaves; and the same failure counts again if it is reported again without a restart.
    pub fn end(&mut self, rank: u32, ending: Ending, returns: bool) {
        let member = &self.members[rank as usize];
        if !member.has_left {
            self.note_exit(RankExit { rank, incarnation: member.incarnation, ending, returns });
        }
    }

    /// Notes that the restart of a rank of this agent is cancelled. Does nothing if the rank has not ended, or if no
    /// restart was reported.
    pub fn cancel_restart(&mut self, rank: u32) {
        let member = &self.members[rank as usize];
        if let Some(ending) = member.ended.clone() {
            self.note_exit(RankExit { rank, incarnation: member.incarnation, ending, returns: false });
        }
    }

    /// Returns true if a rank of this agent has announced that it leaves.
    pub fn has_left(&self, rank: u32) -> bool {
        self.members[rank as usize].has_left
    }

    /// Notes that ranks of other agents have ended.
    pub fn note_remote_exits(&mut self, exits: Vec<RankExit>) {
        for exit in exits {
            if self.members.len() > exit.rank as usize {
                self.note_exit(exit);
            }
        }
    }

    /// Informs a rank that another rank has given it up. Returns true if the rank is informed. Does nothing, and
    /// returns false, if the rank is not of this agent, if the incarnation that was given up does not run any more, or
    /// if `by` is not another rank of the job.
    pub fn inform_given_up(&mut self, given_up: GivenUp) -> bool {
        let GivenUp { by, rank, incarnation, .. } = given_up;
        let is_member = (by as usize) < self.members.len() && by != rank;
        let is_informed = is_member
            && self.here.contains(&rank)
            && self.incarnation(rank) == incarnation
            && !self.has_ended(rank);
        if is_informed {
            self.outbox.push(Post::Rank(rank, ToRank::GaveUp(given_up)));
        }
        is_informed
    }

    /// Notes that a rank of this agent was stopped, or continued.
    pub fn stop(&mut self, rank: u32, is_stopped: bool) {
        let stop = Stop { rank, incarnation: self.incarnation(rank), is_stopped };
        self.report_stop(stop);
        self.outbox.push(Post::Coordinator(FromAgent::Stopped(stop)));
    }

    /// Informs the other ranks of this agent that a rank was stopped, or continued.
    pub fn report_stop(&mut self, stop: Stop) {
        let others = self.present_ranks().filter(|&to| to != stop.rank);
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

    /// Returns true if a rank of this agent has reported that it ended by a panic.
    pub fn has_panicked(&self, rank: u32) -> bool {
        self.members[rank as usize].ended == Some(Ending::Panicked)
    }

    /// Returns how urgent the unreported ends are, or `None` if all ends have been reported.
    pub fn unreported(&self) -> Option<Urgent> {
        (!self.unreported.is_empty()).then_some(Urgent(self.urgent))
    }

    /// Reports all unreported ends to the ranks of this agent. Reports the ends of this agent's ranks to the
    /// coordinator. Returns the number of messages.
    pub fn report(&mut self) -> u32 {
        let unreported = std::mem::take(&mut self.unreported);
        if unreported.is_empty() {
            return 0;
        }
        self.urgent = false;
        let before = self.outbox.len();
        let posts: Vec<_> =
            self.present_ranks().map(|to| Post::Rank(to, ToRank::Ended(unreported.clone()))).collect();
        self.outbox.extend(posts);
        let ours: Vec<_> = unreported.into_iter().filter(|end| self.here.contains(&end.rank)).collect();
        if !ours.is_empty() {
            self.outbox.push(Post::Coordinator(FromAgent::Ended(ours)));
        }
        (self.outbox.len() - before) as u32
    }

    /// Returns the ranks of this agent that have not ended.
    fn present_ranks(&self) -> impl Iterator<Item = u32> {
        self.here.clone().filter(|&rank| !self.has_ended(rank))
    }

    fn note_exit(&mut self, exit: RankExit) {
        let member = &mut self.members[exit.rank as usize];
        let is_news = match &member.ended {
            None => true,
            Some(Ending::Left) => exit.ending != Ending::Left,
            Some(known) => member.returns && !exit.returns && *known == exit.ending,
        };
        if !is_news || member.incarnation != exit.incarnation {
            return;
        }
        member.ended = Some(exit.ending.clone());
        member.returns = exit.returns;
        (member.address, member.waiting) = (None, Vec::new());
        self.urgent |= exit.ending != Ending::Left;
        self.unreported.push(exit);
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

    /// Sends the address of a restarted rank to the ranks of this agent that have not ended.
    fn announce(&mut self, whereabouts: &Whereabouts) {
        // The end of the rank's former incarnation must be reported first.
        self.report();
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
            self.outbox.push(Post::Coordinator(FromAgent::Returned(whereabouts)));
        }
        self.send_address(rank);
        Ok(())
    }

    /// Handles a verdict of a rank of this agent on another rank. A correct rank gives up each incarnation once, and
    /// only incarnations that were started. All other verdicts are refused or ignored, so a hostile rank cannot fill
    /// the connections of other ranks.
    fn give_up_peer(&mut self, by: u32, rank: u32, incarnation: u32, why: String) -> Result<(), String> {
        let size = self.members.len();
        let Some(member) = self.members.get(rank as usize).filter(|_| rank != by) else {
            return Err(format!("rank {by} of a job of {size} gave up rank {rank}"));
        };
        if why.len() > WHY_BYTES_MAX {
            return Err(format!("it gave up rank {rank} for a reason of {} bytes", why.len()));
        }
        // A rank may know a later incarnation of a rank of another host than this agent does, because it has
        // communicated with that incarnation. But it can be only a few incarnations ahead. Verdicts on later
        // incarnations, and on earlier ones, are ignored.
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
        // The coordinator reports the verdict to the user. If the rank that was given up is on another host, the
        // coordinator also sends the verdict to the agent of that host.
        if !self.here.contains(&rank) || self.inform_given_up(given_up.clone()) {
            self.outbox.push(Post::Coordinator(FromAgent::GaveUp(given_up)));
        }
        Ok(())
    }

    fn request(&mut self, asker: Asker, wanted: u32) -> Result<(), String> {
        let size = self.members.len();
        let Some(member) = self.members.get_mut(wanted as usize) else {
            return Err(format!("it asked for rank {wanted} of a job of {size}"));
        };
        // If the rank has ended, no answer is needed: all ranks get the report of its end.
        if member.ended.is_some() || member.waiting.contains(&asker) {
            return Ok(());
        }
        let is_first = member.waiting.is_empty();
        member.waiting.push(asker);
        if member.address.is_some() {
            self.send_address(wanted);
        } else if is_first && !self.here.contains(&wanted) {
            self.outbox.push(Post::Coordinator(FromAgent::Question { rank: wanted }));
        }
        Ok(())
    }

    /// Sends the address of `rank` to all ranks and hosts that wait for it.
    fn send_address(&mut self, rank: u32) {
        let member = &mut self.members[rank as usize];
        let Some(address) = &member.address else { return };
        let whereabouts = Whereabouts { rank, incarnation: member.incarnation, address: address.clone() };
        for asker in member.waiting.drain(..) {
            let whereabouts = whereabouts.clone();
            self.outbox.push(match asker {
                Asker::Rank(to) => Post::Rank(to, ToRank::Address(whereabouts)),
                Asker::Host(host) => Post::Coordinator(FromAgent::Answer { host, whereabouts }),
            });
        }
    }
}

/// The largest number of restarts of one rank of another host of which this agent is not informed yet, although its own
/// ranks may know of them.
const INCARNATIONS_AHEAD: u32 = 8;

/// True if the unreported ends must be reported without delay.
pub struct Urgent(pub bool);

#[cfg(test)]
mod tests;
