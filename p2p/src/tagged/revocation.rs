//! Revoked communicators: every operation on them ends, at every member.
//!
//! A member that revokes a communicator, or learns that another one did, ends its operations there and sends VOID to
//! some other members. In a ring of all members these are the members at the distances 1, 2, 4, and so on, in both
//! directions. So VOID reaches all members after a logarithmic number of steps, if no member fails. It also sends VOID
//! to the next living member of the ring, and to the one after that when that member fails. So all living members learn
//! of the revocation, although any of them fail. A member that has closed the communicator answers with LEAVE, and
//! counts as failed here. (Binomial graphs for this purpose: G. Bosilca et al., "Failure Detection and Propagation in
//! HPC systems", SC16.)
//!
//! The peer of an operation that ends gets VOID before it gets the packet that ends its side of the operation. So both
//! sides end with the same error.

use std::collections::BTreeSet;

use samite_fabric::link::{Error, Group, Link, Peer, WorldRank};
use samite_fabric::wire::WireError;
use samite_matching::{Pattern, Source};

use super::Tagged;
use crate::agreement::BY_SOME;
use crate::contexts::{FIRST, Opened};
use crate::engine::COLLECTIVE_TAG;
use crate::request::{Request, State};
use crate::survivors::{SURVIVORS_TAG, is_of_survivors};
use crate::wire::{Leave, Retire, Void, kind};

impl Tagged {
    /// Revokes the two contexts of a communicator: ends this rank's operations there, drops its unexpected messages,
    /// and informs other members. The agreements of survivors continue. Does nothing if they are revoked already, or
    /// not open.
    #[cold]
    pub(crate) fn revoke_contexts(&mut self, link: &mut Link, context: u32) {
        if !self.contexts.revoke(context, link) {
            return;
        }
        let is_in = |of: u32| of & !1 == context & !1;
        let requests = self.requests.select(|request| {
            is_in(request.context)
                && !is_of_survivors(request.tag)
                && !request.copied.is_kept()
                && request.result.is_none()
                && !matches!(request.state, State::Composite | State::Partitioned { .. })
        });
        let halves = self.halves_in(is_in);
        let partner = |id| self.requests.get(id).and_then(Request::rank);
        let mut informed: BTreeSet<WorldRank> = requests.iter().copied().filter_map(partner).collect();
        let members = self.members_of(link, context);
        informed.extend(neighbours(&members, link.identity().rank));
        informed.extend(self.next_living(link, context, &members, None));
        informed.into_iter().for_each(|rank| self.send_void(link, context, rank));
        requests.into_iter().for_each(|id| self.give_up(link, id, Error::Revoked));
        for half in halves {
            self.tell_peer_of_half(link, half);
            self.end_half(link, half, Error::Revoked, true);
        }
        self.drop_inits_in(link, is_in);
        self.drop_messages_in(link, context & !1);
    }

    /// Handles the news that a member has revoked a communicator.
    #[cold]
    pub(super) fn void(&mut self, link: &mut Link, peer: Peer, void: &Void) -> Result<(), WireError> {
        let name = void.name.get();
        let rank = link.peer(peer).rank();
        match self.contexts.of_member(name, rank)? {
            Opened::Now(context) => self.revoke_contexts(link, context),
            Opened::Before => self.leave_behind_messages(link, peer, name),
            Opened::Never => self.contexts.revoke_early(name, rank),
        }
        Ok(())
    }

    /// Informs a peer that this rank has left contexts, after which the peer takes no message of this rank there. An answer
    /// overtakes messages that wait to be sent. So it waits until the messages of agreements of survivors have been sent:
    /// this rank has closed the contexts with their result, and the peer needs them for the same result.
    fn leave_behind_messages(&mut self, link: &mut Link, peer: Peer, name: u64) {
        if self.sends_to_survivor(link.peer(peer).rank(), name) {
            self.awaiting_leave.push((peer, name));
        } else {
            self.answer(link, peer, kind::LEAVE, &Leave { name: name.into() });
        }
    }

    /// Sends each LEAVE that waits for no message any more.
    #[cold]
    pub(super) fn send_late_leaves(&mut self, link: &mut Link) {
        for (peer, name) in std::mem::take(&mut self.awaiting_leave) {
            self.leave_behind_messages(link, peer, name);
        }
    }

    /// Returns true if a message of an agreement of survivors to a rank, in contexts with a name, is under way.
    fn sends_to_survivor(&self, rank: WorldRank, name: u64) -> bool {
        let context = self.contexts.number_of(name);
        let under_way = self.requests.select(|request| {
            request.rank() == Some(rank)
                && request.is_send()
                && request.context & !1 == context
                && is_of_survivors(request.tag)
                && (request.result.is_none() || request.collected)
        });
        !under_way.is_empty()
    }

    /// Informs the other members of two contexts that this rank takes part in no agreement of survivors there any more.
    #[cold]
    pub(crate) fn retire_from(&mut self, link: &mut Link, context: u32) {
        let Some(name) = self.contexts.name(context) else { return };
        let mine = link.identity().rank;
        for rank in self.members_of(link, context).iter().filter(|rank| *rank != mine) {
            // Only members that take part are informed.
            if let Ok(peer) = link.live_peer(rank) {
                self.answer(link, peer, kind::RETIRE, &Retire { name: name.into() });
                link.seek(peer);
            }
        }
    }

    /// Notes that a peer takes part in no agreement of survivors of two contexts any more.
    #[cold]
    pub(super) fn retire(&mut self, link: &mut Link, peer: Peer, retire: &Retire) -> Result<(), WireError> {
        let rank = link.peer(peer).rank();
        if let Opened::Now(context) = self.contexts.of_member(retire.name.get(), rank)? {
            self.contexts.retire(context, rank);
        }
        Ok(())
    }

    /// Informs a peer that a context is revoked, if it is. Call this before a packet that ends an operation of the
    /// peer.
    #[cold]
    pub(super) fn tell_revoked(&self, link: &mut Link, peer: Peer, context: u32) {
        if self.contexts.is_revoked(context) {
            self.answer(link, peer, kind::VOID, &Void { name: self.name_of(context).into() });
        }
    }

    /// Passes revocations on, because a member has ended for all contexts, or for the given pair.
    #[cold]
    pub(super) fn pass_revocations(&mut self, link: &mut Link, ended: WorldRank, only: Option<u32>) {
        for context in self.contexts.revoked() {
            if only.is_some_and(|only| only & !1 != context) {
                continue;
            }
            let members = self.members_of(link, context);
            if let Some(next) = self.next_living(link, context, &members, Some(ended)) {
                self.send_void(link, context, next);
            }
        }
    }

    fn send_void(&self, link: &mut Link, context: u32, to: WorldRank) {
        // Only members that take part are informed.
        if to != link.identity().rank
            && let Ok(peer) = link.live_peer(to)
        {
            self.tell_revoked(link, peer, context);
            link.seek(peer);
        }
    }

    /// Returns the next member of the ring that lives, behind this rank. With `behind`, returns it only if that member
    /// was between this rank and the returned one.
    fn next_living(
        &mut self,
        link: &mut Link,
        context: u32,
        members: &Group,
        behind: Option<WorldRank>,
    ) -> Option<WorldRank> {
        let mine = members.index(link.identity().rank)?;
        let mut has_passed = behind.is_none();
        for distance in 1..members.len() {
            let at = (u64::from(mine) + u64::from(distance)) % u64::from(members.len());
            let rank = members.rank(at as u32)?;
            let lives = link
                .live_peer(rank)
                .is_ok_and(|peer| matches!(self.contexts.member(link, context | 1, peer), Some(None)));
            if lives {
                return has_passed.then_some(rank);
            }
            has_passed |= behind == Some(rank);
        }
        None
    }

    fn members_of(&self, link: &Link, context: u32) -> Group {
        let all = || Group::range(WorldRank(0), link.identity().size);
        self.contexts.members(context).cloned().unwrap_or_else(all)
    }

    pub(super) fn name_of(&self, context: u32) -> u64 {
        if context < FIRST { 0 } else { self.contexts.name(context).expect("the context is open") }
    }

    /// Drops all messages that have arrived in two contexts, except the messages of agreements of survivors.
    fn drop_messages_in(&mut self, link: &mut Link, context: u32) {
        // Tags without the first bit; with it and without the third; with both and without the second.
        let kinds = [(0, BY_SOME), (BY_SOME, COLLECTIVE_TAG), (COLLECTIVE_TAG, SURVIVORS_TAG)];
        let everything = Pattern { context, source: Source::ANY, tag: 0, mask: 0 };
        let (of_program, of_control) =
            if context < FIRST { (context + 1, context) } else { (context, context + 1) };
        let in_control = kinds.map(|(tag, mask)| Pattern { context: of_control, tag, mask, ..everything });
        for pattern in [Pattern { context: of_program, ..everything }].into_iter().chain(in_control) {
            self.drop_matching(link, &pattern);
        }
    }
}

/// Returns the members at the distances 1, 2, 4, and so on from this rank, in both directions of the ring.
fn neighbours(members: &Group, mine: WorldRank) -> impl Iterator<Item = WorldRank> + '_ {
    let (mine, len) = (members.index(mine), u64::from(members.len()));
    let distances = (0..u32::BITS).map(|level| 1 << level).take_while(move |distance| *distance < len);
    distances
        .flat_map(move |distance| {
            let mine = u64::from(mine.unwrap_or(0));
            [mine + distance, mine + len - distance].map(|at| (at % len) as u32)
        })
        .filter_map(|at| members.rank(at))
}
