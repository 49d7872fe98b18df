//! Who is where, and who has ended: the rendezvous of a job's ranks, without any input or output.

use crate::control::{Ending, FromRank, Secret, ToRank};

/// Addresses and endings of the ranks of a job. Each step leaves in `outbox` what is to be sent, and to whom.
///
/// A rank costs one publication, one question and one answer for each partner, and one notice to each rank
/// that is still there when it ends.
#[derive(Debug)]
pub(super) struct Registry {
    members: Vec<Member>,
    secret: Secret,
    /// What is to be sent: the receiving rank and the message.
    pub(super) outbox: Vec<(u32, ToRank)>,
}

#[derive(Debug, Default)]
struct Member {
    address: Option<Vec<u8>>,
    /// Ranks that have asked for the address before it was known.
    waiting: Vec<u32>,
    has_ended: bool,
}

impl Registry {
    pub(super) fn new(size: u32, secret: Secret) -> Registry {
        Registry { members: (0..size).map(|_| Member::default()).collect(), secret, outbox: Vec::new() }
    }

    /// Acts on what `rank` said.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub(super) fn handle(&mut self, rank: u32, message: FromRank) -> Result<(), String> {
        match message {
            FromRank::Publish { address } => self.publish(rank, address),
            FromRank::Request { rank: wanted } => self.request(rank, wanted),
            FromRank::Leave => {
                self.end(rank, Ending::Left);
                Ok(())
            }
            FromRank::Panicked => {
                self.end(rank, Ending::Panicked);
                Ok(())
            }
        }
    }

    /// `rank` has ended: tells all ranks that have not. Only the first of several endings counts.
    pub(super) fn end(&mut self, rank: u32, ending: Ending) {
        let member = &mut self.members[rank as usize];
        if member.has_ended {
            return;
        }
        *member = Member { has_ended: true, ..Member::default() };
        let left = (0..).zip(&self.members).filter(|(_, member)| !member.has_ended);
        self.outbox.extend(left.map(|(to, _)| (to, ToRank::Died { rank, ending })));
    }

    pub(super) fn has_ended(&self, rank: u32) -> bool {
        self.members[rank as usize].has_ended
    }

    fn publish(&mut self, rank: u32, address: Vec<u8>) -> Result<(), String> {
        let incarnation = self.secret.first_incarnation(rank);
        let member = &mut self.members[rank as usize];
        if member.address.is_some() {
            return Err("it published its address twice".to_owned());
        }
        let waiting = std::mem::take(&mut member.waiting);
        let message = ToRank::Address { rank, address: address.clone(), incarnation };
        self.outbox.extend(waiting.into_iter().map(|to| (to, message.clone())));
        member.address = Some(address);
        Ok(())
    }

    fn request(&mut self, rank: u32, wanted: u32) -> Result<(), String> {
        let size = self.members.len();
        let Some(member) = self.members.get_mut(wanted as usize) else {
            return Err(format!("it asked for rank {wanted} of a job of {size}"));
        };
        match &member.address {
            Some(address) => {
                let incarnation = self.secret.first_incarnation(wanted);
                let message = ToRank::Address { rank: wanted, address: address.clone(), incarnation };
                self.outbox.push((rank, message));
            }
            // Whoever asks for a rank that has ended was told so before.
            None if member.has_ended => {}
            None if member.waiting.contains(&rank) => {}
            None => member.waiting.push(rank),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret([5; 16]);

    fn address_message(rank: u32, address: &[u8]) -> ToRank {
        ToRank::Address { rank, address: address.to_vec(), incarnation: SECRET.first_incarnation(rank) }
    }

    fn publish(registry: &mut Registry, rank: u32) {
        registry.handle(rank, FromRank::Publish { address: vec![rank as u8] }).unwrap();
    }

    fn sent(registry: &mut Registry) -> Vec<(u32, ToRank)> {
        std::mem::take(&mut registry.outbox)
    }

    #[test]
    fn a_question_is_answered_once_whether_it_comes_early_or_late() {
        let mut registry = Registry::new(3, SECRET);
        for _ in 0..2 {
            registry.handle(0, FromRank::Request { rank: 2 }).unwrap();
        }
        assert_eq!(sent(&mut registry), []);
        publish(&mut registry, 2);
        assert_eq!(sent(&mut registry), [(0, address_message(2, &[2]))]);
        registry.handle(1, FromRank::Request { rank: 2 }).unwrap();
        assert_eq!(sent(&mut registry), [(1, address_message(2, &[2]))]);
    }

    #[test]
    fn an_ending_is_told_once_to_those_who_are_left() {
        let mut registry = Registry::new(4, SECRET);
        let killed = Ending::Killed { signal: 9, core: false };
        registry.end(1, killed);
        let died = |rank, ending| ToRank::Died { rank, ending };
        assert_eq!(sent(&mut registry), [(0, died(1, killed)), (2, died(1, killed)), (3, died(1, killed))]);
        registry.end(1, Ending::Left);
        assert_eq!(sent(&mut registry), []);
        registry.handle(3, FromRank::Leave).unwrap();
        assert_eq!(sent(&mut registry), [(0, died(3, Ending::Left)), (2, died(3, Ending::Left))]);
    }

    #[test]
    fn a_rank_that_has_ended_is_not_reachable_any_more() {
        let mut registry = Registry::new(2, SECRET);
        publish(&mut registry, 1);
        registry.end(1, Ending::Left);
        sent(&mut registry);
        registry.handle(0, FromRank::Request { rank: 1 }).unwrap();
        assert_eq!(sent(&mut registry), []);
    }

    #[test]
    fn nonsense_is_refused() {
        let mut registry = Registry::new(2, SECRET);
        publish(&mut registry, 0);
        assert!(registry.handle(0, FromRank::Publish { address: vec![] }).is_err());
        assert!(registry.handle(0, FromRank::Request { rank: 2 }).is_err());
    }
}
